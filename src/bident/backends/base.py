"""The seam between the engine and whatever runs a model.

A backend never sees queues, protocols or the event loop. It may raise anything: the lane wraps what
``execute`` raises, the lifecycle what ``load`` raises. Backends are found through the entry-point
group ``bident.backends``; Bident's own enter by that door too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from bident.errors import ConfigError
from bident.model.config import ModelConfig


@dataclass(frozen=True)
class ModelFiles:
    """Where one version of one model lies on disk.

    ``directory`` is the model's folder (``config.pbtxt``, labels), ``version_directory`` the folder
    of this version (``<directory>/<version>``), which holds the model file.
    """

    directory: Path
    version: int

    @property
    def version_directory(self) -> Path:
        return self.directory / str(self.version)

    def model_file(self, config: ModelConfig, *candidates: str) -> Path:
        """The model file: ``default_model_filename`` if declared, else the first candidate that exists.

        Raises ConfigError that lists what was looked for and what the folder holds.
        """
        wanted = (config.default_model_filename,) if config.default_model_filename else candidates
        for name in wanted:
            path = self.version_directory / name
            if path.exists():
                return path
        present = self.version_directory.iterdir() if self.version_directory.is_dir() else ()
        found = sorted(entry.name for entry in present)
        raise ConfigError(
            f"no model file for '{config.name}' version {self.version}: looked for "
            f"{' or '.join(repr(name) for name in wanted)} in {self.version_directory}, which holds "
            f"{', '.join(repr(name) for name in found) or 'nothing'}; rename the file or set default_model_filename"
        )


@dataclass(frozen=True)
class Device:
    """What an instance may use: the CPU, and at most ``threads`` of its cores for one execution."""

    kind: str = "cpu"
    threads: int = 1


@dataclass(frozen=True)
class BackendOptions:
    """``--backend-config`` as the user gave it: for one backend, and for all."""

    own: dict[str, str] = field(default_factory=dict)
    common: dict[str, str] = field(default_factory=dict)

    @property
    def default_max_batch_size(self) -> int:
        """The batch size that auto-complete gives to a model that can batch (Triton's default: 4)."""
        return int(self.own.get("default-max-batch-size", self.common.get("default-max-batch-size", "4")))


class Instance(ABC):
    """One loaded copy of a model: the only thing that executes, one batch at a time."""

    @abstractmethod
    def execute(self, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Run one merged batch.

        ``inputs`` holds every declared input that the batch carries, by name, in the declared
        datatype and the model's own shape (batch dimension first when ``max_batch_size`` > 0; BYTES
        as object arrays of ``bytes``). Arrays may be read-only. Returns the declared outputs by
        name, likewise; extra ones are ignored.
        """

    def close(self) -> None:  # noqa: B027 - most instances hold nothing that needs closing
        """Give back what the instance holds. Called once, after its last execution."""


class Backend(ABC):
    """A plug-in for one kind of model file. One object serves all models of that kind."""

    name: ClassVar[str]
    """Triton's word for it in ``backend:``."""

    default_instance_count: ClassVar[int] = 1
    """How many instances a model gets whose config does not say."""

    def __init__(self, options: BackendOptions | None = None) -> None:
        self.options = options or BackendOptions()

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """Fill in what ``config`` leaves out and the model file says (inputs, outputs, batching)."""
        return config

    @abstractmethod
    def load(self, files: ModelFiles, config: ModelConfig, device: Device) -> Instance:
        """Read the model file and make an instance ready to execute.

        Called off the event loop, once per instance. Raises ConfigError (or anything) when the
        files do not fit the config; what is wrong should say the tensor or parameter and the cure.
        """
