"""Models without files: instances, backends and requests that a test drives by hand."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np

from bident.backends.base import Backend, Device, Instance, ModelFiles
from bident.engine.clients import Clients
from bident.engine.servable import LoadedModel, Servable
from bident.engine.stats import ModelStats
from bident.errors import Code, ConfigError, ServeError
from bident.model import normalise, pbtxt, validate
from bident.model.config import ModelConfig
from bident.wire.datatypes import FP32, DataType
from bident.wire.infer import InferInput, InferRequest, InferResponse, element_count

DEADLINE_S = 10.0
_in_service: list[Servable] = []

IO = """
input [ { name: "X", data_type: TYPE_FP32, dims: [ 2 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ 2 ] } ]
"""
"""Two numbers in, two numbers out: what most tests need."""
VARIABLE = IO.replace("dims: [ 2 ]", "dims: [ -1 ]")

BATCHING = "dynamic_batching { }"
THREAD = 'parameters { key: "LANE" value { string_value: "thread" } }'
INLINE = 'parameters { key: "LANE" value { string_value: "inline" } }'


def model_config(text: str = BATCHING, *, io: str = IO, batch: int = 8, name: str = "m") -> ModelConfig:
    """A validated config: ``io`` declares the tensors, ``text`` everything else."""
    proto = pbtxt.parse(f'name: "{name}" backend: "fake" max_batch_size: {batch} {io} {text}'.encode(), "test")
    normalise.apply(proto, 1)
    validate.check(proto, "test")
    return ModelConfig.from_proto(proto)


def tensor(name: str, data: Any, shape: tuple[int, ...], datatype: DataType = FP32) -> InferInput:
    return InferInput(name, datatype, shape, element_count(shape), data)


class NoModels:
    """What models may ask that ask nobody."""

    def find(self, name: str, version: str) -> Servable:
        raise ServeError(Code.NOT_FOUND, f"no model '{name}'")

    def cancel(self, request: InferRequest) -> None:
        request.cancelled = True

    async def load(self, name: str, config: str | None, files: dict[str, bytes]) -> None:
        raise ServeError(Code.UNAVAILABLE, "nothing is loaded here")

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        raise ServeError(Code.UNAVAILABLE, "nothing is unloaded here")


class Asked(InferRequest):
    """A request that keeps its answers."""

    def __init__(self, *inputs: InferInput, model: str = "m", version: str = "", request_id: str = "") -> None:
        by_name = {given.name: given for given in inputs}
        super().__init__(model, version, request_id, by_name, time.monotonic_ns())
        self.reply = self._keep
        self.answers: list[InferResponse] = []

    def _keep(self, response: InferResponse) -> None:
        self.answers.append(response)

    @property
    def is_answered(self) -> bool:
        return bool(self.answers)

    @property
    def response(self) -> InferResponse:
        """The one answer, which must have come."""
        assert len(self.answers) == 1, f"{len(self.answers)} answers"
        return self.answers[0]

    @property
    def error(self) -> ServeError:
        error = self.response.error
        assert error is not None, "the request succeeded"
        return error

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        assert self.response.error is None, self.response.error
        return {output.name: output.array for output in self.response.outputs}


def ask(value: float, rows: int = 1, *, model: str = "m", version: str = "", request_id: str = "") -> Asked:
    """``rows`` rows of [value, -value] for the tensor X of ``IO``, as a list as a JSON door sends it."""
    return Asked(tensor("X", [value, -value] * rows, (rows, 2)), model=model, version=version, request_id=request_id)


def answer_of(value: float, rows: int = 1) -> list[list[float]]:
    """What :class:`Echo` answers to ``ask(value, rows)``."""
    return [[value, -value]] * rows


class Echo(Instance):
    """Y = X, and every batch is noted. ``hold`` makes executions wait until ``release``."""

    def __init__(self, function: Callable[[dict[str, np.ndarray]], Any] | None = None) -> None:
        self.batches: list[dict[str, np.ndarray]] = []
        self.closed = 0
        self.running = 0
        self.finished = 0
        self._function = function or (lambda inputs: {"Y": inputs["X"]})
        self._gate = threading.Event()
        self._gate.set()

    def hold(self) -> None:
        self._gate.clear()

    def release(self) -> None:
        self._gate.set()

    def execute(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        assert not self.closed, "executed after close"
        self.running += 1
        self.batches.append(inputs)
        assert self._gate.wait(DEADLINE_S), "nobody released the instance"
        try:
            result: dict[str, np.ndarray] = self._function(inputs)
            return result
        finally:
            self.running -= 1
            self.finished += 1

    def close(self) -> None:
        assert not self.running, "closed while executing"
        self.closed += 1

    @property
    def rows(self) -> list[int]:
        """The size of each batch so far."""
        return [len(next(iter(batch.values()))) for batch in self.batches]

    @property
    def firsts(self) -> list[list[float]]:
        """The first number of each row of each batch: which requests ran together, in which order."""
        return [batch["X"][:, 0].tolist() for batch in self.batches]


class FakeBackend(Backend):
    """Loads what ``make`` returns. Keeps every instance that it made."""

    name = "fake"

    def __init__(self, make: Callable[[ModelFiles, ModelConfig], Instance]) -> None:
        super().__init__()
        self.make = make
        self.made: list[Instance] = []
        self.devices: list[Device] = []

    def load(self, files: ModelFiles, config: ModelConfig, device: Device) -> Instance:
        self.devices.append(device)
        instance = self.make(files, config)
        self.made.append(instance)
        return instance


class FakeBackends:
    """Stands in for the installed backends."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def names(self) -> list[str]:
        return [self.backend.name]

    def get(self, name: str) -> Backend:
        if name != self.backend.name:
            raise ConfigError(f"unable to find backend library for backend '{name}'")
        return self.backend


def write_model(repository: Path, name: str, text: str = BATCHING, *, versions: tuple[int, ...] = (1,)) -> Path:
    """The folder of a fake model with the tensors of ``IO``."""
    folder = repository / name
    folder.mkdir(parents=True, exist_ok=True)
    for version in versions:
        (folder / str(version)).mkdir(exist_ok=True)
    (folder / "config.pbtxt").write_text(f'backend: "fake" max_batch_size: 8 {IO} {text}', encoding="utf-8")
    return folder


def clients_of(count: int) -> Clients:
    clients = Clients()
    clients.count = count
    return clients


def servable_of(config: ModelConfig, *instances: Instance, clients: int = 9) -> Servable:
    """A version in service on the running loop, with this many clients connected."""
    loaded = LoadedModel(config, {}, {1: list(instances)})
    servable = Servable(loaded, 1, ModelStats(), asyncio.get_running_loop(), clients_of(clients), NoModels())
    _in_service.append(servable)
    return servable


async def until(condition: Callable[[], Any], what: str = "the condition") -> None:
    """Let the loop run until ``condition`` holds; fails after a deadline."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"{what} did not come about"
        await asyncio.sleep(0.0005)


async def answered(*requests: Asked) -> None:
    await until(lambda: all(request.is_answered for request in requests), "an answer")


def infer(servable: Servable, *requests: Asked) -> None:
    for request in requests:
        servable.infer(request)


async def running(instance: Echo, count: int = 1) -> None:
    await until(lambda: instance.running == count, "an execution")


async def busy(servable: Servable, instance: Echo) -> Asked:
    """Keep the only ``instance`` of ``servable`` busy until it is released; returns the request that does."""
    instance.hold()
    blocker = ask(0)
    infer(servable, blocker)
    await running(instance)
    return blocker


def failures(servable: Servable) -> dict[str, int]:
    return {reason.value: count for reason, count in servable.stats.failures.items() if count}


async def turns(count: int = 20) -> None:
    """Let the loop do whatever it would do at once."""
    for _ in range(count):
        await asyncio.sleep(0)


async def _end_threads() -> None:
    for servable in _in_service:
        servable.retire(lambda: None)
    await turns()
    await asyncio.get_running_loop().shutdown_default_executor()


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on the loop that the server uses."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            import uvloop

            loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        except ImportError:  # Windows
            loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(asyncio.wait_for(test(*args, **kwargs), 60))
            loop.run_until_complete(_end_threads())
        finally:
            _in_service.clear()
            loop.close()

    return run
