"""The seam between the engine and whatever runs a model.

A backend never sees queues, protocols or the event loop. It may raise anything: the lane wraps what
``execute`` raises, the lifecycle what ``load`` raises. Backends are found through the entry-point
group ``bident.backends``; Bident's own enter by that door too.
"""

from __future__ import annotations

import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

from numpy.typing import NDArray

from bident.errors import ConfigError, ServeError
from bident.model.config import ModelConfig
from bident.model.files import kind_of
from bident.settings.places import user_cache_directory
from bident.wire.infer import InferRequest

Arrays: TypeAlias = dict[str, NDArray[Any]]
"""Tensors by name."""


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

        It is a regular file, or a folder. Raises ConfigError that lists what was looked for and what
        the folder holds.
        """
        wanted = (config.default_model_filename,) if config.default_model_filename else candidates
        for name in wanted:
            path = self.version_directory / name
            if _is_present(path):
                return path
        present = self.version_directory.iterdir() if self.version_directory.is_dir() else ()
        found = sorted(entry.name for entry in present)
        raise ConfigError(
            f"no model file for '{config.name}' version {self.version}: looked for "
            f"{' or '.join(repr(name) for name in wanted)} in {self.version_directory}, which holds "
            f"{', '.join(repr(name) for name in found) or 'nothing'}; rename the file or set default_model_filename"
        )


def _is_present(path: Path) -> bool:
    """Whether a file or folder is there. Raises ConfigError for a pipe or a device: opening it might wait for ever."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # the name itself may be none
        return False
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return True
    raise ConfigError(f"model file {path} is {kind_of(mode)}, not a regular file; put the model itself there")


@dataclass(frozen=True)
class Device:
    """What an instance may use: the CPU, and at most ``threads`` of its cores for one execution."""

    kind: str = "cpu"
    threads: int = 1
    instance: str = ""
    """How this instance is called: its group's name and its number in it."""


@dataclass(frozen=True)
class BackendOptions:
    """``--backend-config`` as the user gave it: for one backend, and for all."""

    own: dict[str, str] = field(default_factory=dict)
    common: dict[str, str] = field(default_factory=dict)
    cache_directory: Path = field(default_factory=user_cache_directory)
    """Where a backend keeps what is worth keeping over restarts."""

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


class Answers(Protocol):
    """Where a :class:`RequestInstance` says what becomes of one batch. Called on the event loop.

    Every request is answered to its end exactly once: by ``answered`` all together, or each by the
    ``replied`` that is final. ``executed`` is called once, before or after that.
    """

    def answered(self, outputs: Arrays, rows: Sequence[int]) -> None:
        """The only answers to all requests, one behind the other along the first axis; each has its ``rows``."""

    def replied(
        self,
        index: int,
        outputs: Arrays,
        *,
        error: ServeError | None = None,
        parameters: dict[str, Any] | None = None,
        final: bool = True,
    ) -> None:
        """One answer to the request at ``index``. ``outputs`` is empty if it failed, or if only the end has come."""

    def rescheduled(self, index: int) -> None:
        """The model wants the request at ``index`` in a later batch once more: for this batch it is answered."""

    def executed(self, start_ns: int, end_ns: int) -> None:
        """The model ran from ``start_ns`` to ``end_ns`` (monotonic), and can take the next batch."""


class Server(Protocol):
    """What a model may ask of the server it runs in. Used on the event loop only."""

    def infer(self, request: InferRequest) -> None:
        """Have another model answer ``request`` through its ``reply``. Raises ServeError if it is refused."""

    def cancel(self, request: InferRequest) -> None:
        """Nobody waits for the answer to ``request`` any more."""

    def is_model_ready(self, name: str, version: str) -> bool:
        """Whether a model ("" for the latest version) answers requests."""

    def is_decoupled(self, name: str, version: str) -> bool:
        """Whether a model answers a request any number of times. Raises ServeError when it is not there."""

    async def load(self, name: str, config: str | None, files: dict[str, bytes]) -> None:
        """Load or reload a model. Raises ServeError."""

    async def unload(self, name: str, *, dependents: bool) -> None:
        """Take a model out of service, with ``dependents`` also what only it needed. Raises ServeError."""


class RequestInstance(ABC):
    """A copy of a model that sees single requests and answers them when it likes.

    Unlike an :class:`Instance` it lives on the event loop and must never hold it up; what takes
    time happens in another process or thread.
    """

    is_available: bool = False
    """Whether it can take a batch, once the last one has been executed."""
    is_lost: bool = False
    """Whether it is not available and will not be again."""
    reason: str = "it is being started"
    """Why it is not available; of one that is lost, also what it takes to have it again."""

    @abstractmethod
    async def start(self, server: Server, changed: Callable[[], None]) -> None:
        """Become available; ``changed`` is to be called whenever ``is_available`` has changed. Raises ServeError."""

    @abstractmethod
    def execute_requests(
        self, requests: Sequence[InferRequest], inputs: Arrays | list[Arrays], answers: Answers
    ) -> None:
        """Run a batch. Raises ServeError if it cannot be taken; then nothing is said to ``answers``.

        ``inputs`` are as for :meth:`Instance.execute`: for a batching model the rows of all requests,
        one behind the other (each has ``batch_size`` of them); else there is one request. Where the
        config allows ragged batches they come apart, for each request its own.
        """

    def cancel(self, answers: Answers, indexes: Sequence[int]) -> None:  # noqa: B027 - a model need not listen
        """Nobody waits for these requests of a batch any more; they are answered all the same."""

    def poll(self) -> None:  # noqa: B027 - what comes by itself need not be looked for
        """Take in now what has come from where the model runs; the event loop would find it a little later."""

    async def is_ready(self) -> bool:
        """Whether it is available and the model itself says that it is ready."""
        return self.is_available

    async def close(self) -> None:  # noqa: B027 - as for Instance
        """End it. Requests that await an answer get an error first."""


AnyInstance: TypeAlias = Instance | RequestInstance


class Backend(ABC):
    """A plug-in for one kind of model file. One object serves all models of that kind."""

    name: ClassVar[str]
    """Triton's word for it in ``backend:``."""

    default_instance_count: ClassVar[int] = 1
    """How many instances a model gets whose config does not say."""

    completes_elsewhere: ClassVar[bool] = False
    """Whether ``complete`` only waits for another process: it may take long, and holds no other load up."""

    lanes: ClassVar[tuple[str, ...]] = ("inline", "thread")
    """What the parameter ``LANE`` of a model may say."""

    def __init__(self, options: BackendOptions | None = None) -> None:
        self.options = options or BackendOptions()

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """Fill in what ``config`` leaves out and the model file says (inputs, outputs, batching)."""
        return config

    @abstractmethod
    def load(self, files: ModelFiles, config: ModelConfig, device: Device) -> AnyInstance:
        """Read the model file and make an instance ready to execute (a RequestInstance: ready to be started).

        Called off the event loop, once per instance. Raises ConfigError (or anything) when the
        files do not fit the config; what is wrong should say the tensor or parameter and the cure.
        """

    def metrics(self) -> Iterable[str]:
        """What models of this backend add to the metrics page: lines of the exposition format, newline included.

        Any thread may go through them, for as long as it takes.
        """
        return ()
