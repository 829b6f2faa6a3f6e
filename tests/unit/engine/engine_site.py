"""An engine over a repository of models that multiply by what their file says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bident.backends.base import Instance, ModelFiles
from bident.engine.control_mode import ControlMode
from bident.engine.engine import Engine
from bident.engine.lifecycle import Lifecycle
from bident.engine.loader import Loader
from bident.errors import ServeError
from bident.model.config import ModelConfig
from bident.model.repository import Repository
from tests.unit.engine.engine_fakes import (
    BATCHING,
    Echo,
    FakeBackend,
    FakeBackends,
    NoModels,
    answered,
    ask,
    clients_of,
    write_model,
)


def times(files: ModelFiles, config: ModelConfig) -> Instance:
    """A model that multiplies by what its file says; a file that is no number is broken."""
    factor = np.float32((files.version_directory / "factor").read_text())
    return Echo(lambda inputs: {"Y": inputs["X"] * factor})


def write_times(repository: Path, name: str, factor: str, text: str = BATCHING, version: int = 1) -> Path:
    folder = write_model(repository, name, text, versions=(version,))
    (folder / str(version) / "factor").write_text(factor)
    return folder


class Site:
    """An engine over a repository in a temporary folder."""

    def __init__(self, root: Path, mode: str = "explicit", *, strict: bool = True) -> None:
        self.models = root / "models"
        self.models.mkdir(exist_ok=True)
        self.overlays = root / "overlays"
        self.backend = FakeBackend(times)
        loader = Loader(FakeBackends(self.backend))  # type: ignore[arg-type]
        lifecycle = Lifecycle(loader, asyncio.get_running_loop(), clients_of(9))
        lifecycle.models = NoModels()
        self.engine = Engine(Repository([self.models]), lifecycle, ControlMode(mode), self.overlays, strict=strict)

    async def answer(self, name: str = "m", version: str = "") -> Any:
        request = ask(1, model=name, version=version)
        self.engine.infer(request)
        await answered(request)
        return request.tensors["Y"].tolist()

    async def refusal(self, *args: Any) -> ServeError:
        with pytest.raises(ServeError) as caught:
            await self.engine.load(*args)
        return caught.value

    def no_answer(self, name: str = "m", version: str = "") -> ServeError:
        with pytest.raises(ServeError) as caught:
            self.engine.infer(ask(1, model=name, version=version))
        return caught.value

    def overlay_folders(self) -> list[str]:
        return [path.name for path in self.overlays.iterdir()] if self.overlays.exists() else []
