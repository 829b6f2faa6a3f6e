"""Ensembles over models that a test drives by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bident.backends.base import Answers, Arrays, RequestInstance, Server
from bident.engine.cache import ResponseCache
from bident.engine.ensemble import EnsembleServable
from bident.engine.servable import LoadedModel, Servable
from bident.engine.stats import ModelStats
from bident.errors import Code, ServeError
from bident.model import normalise, pbtxt, validate
from bident.model.config import ModelConfig
from bident.wire.infer import InferRequest
from tests.unit.engine.engine_fakes import BATCHING, IO, Asked, Echo, clients_of, model_config, servable_of, until


def tensors(kind: str, words: str) -> str:
    """``X:FP32:2 A:FP32:-1:optional`` as ``input`` or ``output`` of a config."""
    declared = []
    for word in words.split():
        name, datatype, dims, *more = word.split(":")
        optional = "optional: true" if more else ""
        declared.append(f'{kind} {{ name: "{name}" data_type: TYPE_{datatype} dims: [ {dims} ] {optional} }}')
    return " ".join(declared)


def io(inputs: str, outputs: str) -> str:
    return f"{tensors('input', inputs)} {tensors('output', outputs)}"


def step(model: str, inputs: str, outputs: str, version: int = -1) -> str:
    """``X=a Z=b`` maps the model's X and Z to the tensors a and b."""
    maps = [("input_map", pair) for pair in inputs.split()] + [("output_map", pair) for pair in outputs.split()]
    mapped = [f'{kind} {{ key: "{pair.split("=")[0]}" value: "{pair.split("=")[1]}" }}' for kind, pair in maps]
    return f'step {{ model_name: "{model}" model_version: {version} {" ".join(mapped)} }}'


def ensemble_text(*steps: str, io: str = IO, batch: int = 8, more: str = "") -> str:
    return f'platform: "ensemble" max_batch_size: {batch} {io} ensemble_scheduling {{ {" ".join(steps)} {more} }}'


def ensemble_config(*steps: str, io: str = IO, batch: int = 8, name: str = "e", more: str = "") -> ModelConfig:
    """The config of an ensemble, checked as far as it can be without its members."""
    proto = pbtxt.parse(f'name: "{name}" {ensemble_text(*steps, io=io, batch=batch, more=more)}'.encode(), "test")
    normalise.apply(proto, 1)
    validate.check(proto, "test")
    return ModelConfig.from_proto(proto)


class Open(RequestInstance):
    """A model that answers when the test says so; ``asked`` has its batches."""

    is_available = True

    def __init__(self) -> None:
        self.asked: list[tuple[Sequence[InferRequest], Arrays, Answers]] = []
        self.cancelled: list[InferRequest] = []

    async def start(self, server: Server, changed: Callable[[], None]) -> None:
        self.changed = changed

    def execute_requests(self, requests: Sequence[InferRequest], inputs: Arrays, answers: Answers) -> None:
        self.asked.append((requests, inputs, answers))
        answers.executed(1, 2)

    def cancel(self, answers: Answers, indexes: Sequence[int]) -> None:
        (requests,) = [requests for requests, _, other in self.asked if other is answers]
        self.cancelled += [requests[index] for index in indexes]

    def say(self, *rows: Sequence[float], batch: int = 0, final: bool = True, name: str = "Y", **more: Any) -> None:
        """One answer to the only request of a batch."""
        outputs = {name: np.array(rows, np.float32)} if rows else {}
        self.asked[batch][2].replied(0, outputs, final=final, **more)


def total(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A model that adds A and B."""
    return {"Y": inputs["A"] + inputs["B"]}


def values(request: Asked, name: str = "Y") -> list[list[float]]:
    """The rows of one output of an answer."""
    found: list[list[float]] = request.tensors[name].tolist()
    return found


async def reached(*instances: Open, batches: int = 1) -> None:
    """Wait until each of ``instances`` has been given so many batches."""
    await until(lambda: all(len(instance.asked) >= batches for instance in instances), "a batch")


class Stage:
    """The models there are. Takes the place of the engine."""

    def __init__(self, clients: int = 9) -> None:
        self._clients = clients
        self.models: dict[str, Servable] = {}
        self.cancelled: list[InferRequest] = []

    def add(self, name: str, *instances: Any, config: ModelConfig | None = None) -> Servable:
        made = servable_of(config or model_config(BATCHING, name=name), *instances, clients=self._clients)
        self.models[name] = made
        return made

    def echo(self, name: str, function: Callable[[dict[str, np.ndarray]], Any] | None = None, **config: Any) -> Echo:
        """A model Y = ``function`` (X) with these words for its config."""
        instance = Echo(function)
        self.add(name, instance, config=model_config(config.pop("text", BATCHING), name=name, **config))
        return instance

    def plus(self, name: str, number: float, **config: Any) -> Echo:
        return self.echo(name, lambda inputs: {"Y": inputs["X"] + np.float32(number)}, **config)

    def open(self, name: str, *, decoupled: bool = False, batch: int = 8, **config: Any) -> Open:
        """A model whose answers the test gives."""
        instance = Open()
        text = "model_transaction_policy { decoupled: true }" if decoupled else ""
        servable = self.add(name, instance, config=model_config(text, name=name, batch=batch, **config))
        servable.request_lanes[0].owner.lane_changed()
        return instance

    def ensemble(
        self,
        *steps: str,
        name: str = "e",
        decoupled: bool = False,
        cache: ResponseCache | None = None,
        **config: Any,
    ) -> EnsembleServable:
        proto = ensemble_config(*steps, name=name, **config).to_proto()
        if decoupled:
            proto.model_transaction_policy.decoupled = True
        if cache is not None:
            proto.response_cache.enable = True
        loaded = LoadedModel(ModelConfig.from_proto(proto), {}, {1: []})
        loop = asyncio.get_running_loop()
        servable = EnsembleServable(loaded, 1, ModelStats(), loop, clients_of(9), self, cache=cache)
        self.models[name] = servable
        return servable

    def find(self, name: str, version: str) -> Servable:
        if name not in self.models:
            raise ServeError(Code.NOT_FOUND, f"Request for unknown model: '{name}' is not found")
        return self.models[name]

    def cancel(self, request: InferRequest) -> None:
        request.cancelled = True
        self.cancelled.append(request)
        self.models[request.model_name].scheduler.discard_cancelled()

    async def load(self, name: str, config: str | None, files: dict[str, bytes]) -> None:
        raise AssertionError("nothing is loaded here")

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        raise AssertionError("nothing is unloaded here")
