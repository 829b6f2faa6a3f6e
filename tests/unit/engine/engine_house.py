"""A lifecycle over models that a test loads, breaks and holds up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bident.backends.base import Instance, ModelFiles
from bident.engine.lifecycle import Lifecycle
from bident.engine.loader import Loader
from bident.errors import ServeError
from bident.model.config import ModelConfig
from bident.model.folder import ModelFolder
from tests.unit.engine.engine_fakes import (
    BATCHING,
    DEADLINE_S,
    Asked,
    Echo,
    FakeBackend,
    FakeBackends,
    NoModels,
    clients_of,
    write_model,
)

Make = Callable[[ModelFiles, ModelConfig], Instance]
ALL_VERSIONS = "version_policy { all { } }"


class House:
    """A lifecycle over a repository in a temporary folder."""

    def __init__(self, root: Path, make: Make = lambda files, config: Echo(), *, threads: int = 4) -> None:
        self.root = root
        self.backend = FakeBackend(make)
        loader = Loader(FakeBackends(self.backend))  # type: ignore[arg-type]
        self.lifecycle = Lifecycle(loader, asyncio.get_running_loop(), clients_of(9), threads=threads)
        self.lifecycle.models = NoModels()

    async def load(self, name: str = "m", text: str = BATCHING, *, versions: tuple[int, ...] = (1,)) -> None:
        await self.lifecycle.load(self.folder(name, text, versions=versions))

    def folder(self, name: str = "m", text: str = BATCHING, *, versions: tuple[int, ...] = (1,)) -> ModelFolder:
        return ModelFolder(name, write_model(self.root, name, text, versions=versions))

    def states(self, name: str = "m") -> dict[int, str]:
        return {version: state.state.value for version, state in sorted(self.lifecycle.states(name).items())}

    def reasons(self, name: str = "m") -> dict[int, str]:
        return {version: state.reason for version, state in sorted(self.lifecycle.states(name).items())}

    def absent(self, name: str = "m", version: str = "") -> ServeError:
        with pytest.raises(ServeError) as caught:
            self.lifecycle.find(name, version)
        return caught.value

    async def refusal(self, name: str = "m", text: str = BATCHING, *, versions: tuple[int, ...] = (1,)) -> ServeError:
        with pytest.raises(ServeError) as caught:
            await self.load(name, text, versions=versions)
        return caught.value

    def infer(self, request: Asked) -> None:
        self.lifecycle.find(request.model_name, request.model_version).infer(request)


def broken(files: ModelFiles, config: ModelConfig) -> Instance:
    raise ValueError("the file is broken")


class Gate:
    """Lets a test stop loading threads on their way."""

    def __init__(self) -> None:
        self.waiting = 0
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def __call__(self, files: ModelFiles, config: ModelConfig) -> Instance:
        self.waiting += 1
        assert self._open.wait(DEADLINE_S), "nobody opened the gate"
        self.waiting -= 1
        return Echo()


class Constant(Echo):
    """Answers each row with [value, rows of the batch]."""

    def __init__(self, value: float) -> None:
        super().__init__(self._answer)
        self._value = value

    def _answer(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"Y": np.tile(np.array([[self._value, 0]], np.float32), (len(inputs["X"]), 1))}
