"""Ensembles of small Python models, and questions to them that a real Triton 2.51 has answered.

The answers are in ``data/triton_2_51_ensembles.json``: what the real server said about this very
repository. Everything here runs unchanged on both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from model_folders import config_name, parameters

DATA = Path(__file__).parent / "data" / "triton_2_51_ensembles.json"
DECOUPLED = "model_transaction_policy { decoupled: true }"

MODEL = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


def add(given):
    return {"Y": next(iter(given.values())) + np.float32(1)}


def total(given):
    return {"Y": given["A"] + given["B"]}


def names(given):
    rows = len(next(iter(given.values())))
    return {"Y": np.full((rows, 1), ",".join(sorted(given)).encode(), object)}


def half(given):
    return {"Y": given["X"]}


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.kind = config["parameters"]["kind"]["string_value"]
        self.inputs = [declared["name"] for declared in config["input"]]

    def answer(self, outputs):
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])

    def execute(self, requests):
        if self.kind == "count":
            for request in requests:
                self.count(request)
            return None
        return [self.one(request) for request in requests]

    def one(self, request):
        tensors = {name: pb_utils.get_input_tensor_by_name(request, name) for name in self.inputs}
        given = {name: tensor.as_numpy() for name, tensor in tensors.items() if tensor is not None}
        if self.kind == "broken":
            error = pb_utils.TritonError("it is broken", pb_utils.TritonError.UNAVAILABLE)
            return pb_utils.InferenceResponse(error=error)
        if self.kind == "said":
            said = [request.request_id(), request.correlation_id(), request.flags(), request.timeout()]
            said.append(json.loads(request.parameters()))
            return self.answer({"Y": np.full((1, 1), json.dumps(said).encode(), object)})
        return self.answer(globals()[self.kind](given))

    def count(self, request):
        sender = request.get_response_sender()
        given = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        for number in range(int(given[0])):
            sender.send(self.answer({"Y": np.array([number], np.float32)}))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def _declared(kind: str, words: str) -> str:
    """``X:FP32:-1`` or ``A:FP32:2:optional: true`` as ``input`` or ``output`` of a config."""
    lines = []
    for word in words.split(" "):
        name, datatype, dims, *more = word.split(":")
        extra = {"optional": "optional: true", "labels": 'label_filename: "labels.txt"'}[more[0]] if more else ""
        lines.append(f'{kind} {{ name: "{name}" data_type: {config_name(datatype)} dims: [ {dims} ] {extra} }}\n')
    return "".join(lines)


def _member(repository: Path, name: str, kind: str, batch: int, inputs: str, outputs: str, more: str = "") -> None:
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(MODEL)
    head = f'backend: "python"\nmax_batch_size: {batch}\n'
    config = head + _declared("input", inputs) + _declared("output", outputs) + parameters(kind=kind) + more
    (folder / "config.pbtxt").write_text(config)


def step(model: str, inputs: str, outputs: str) -> str:
    """``X=a Z=b`` maps the model's X and Z to the tensors a and b."""
    pairs = [("input_map", pair.split("=")) for pair in inputs.split()]
    pairs += [("output_map", pair.split("=")) for pair in outputs.split()]
    maps = " ".join(f'{kind} {{ key: "{ours}" value: "{tensor}" }}' for kind, (ours, tensor) in pairs)
    return f'  step {{ model_name: "{model}" model_version: -1 {maps} }}\n'


def write_ensemble(repository: Path, name: str, batch: int, inputs: str, outputs: str, *steps: str) -> None:
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    head = f'platform: "ensemble"\nmax_batch_size: {batch}\n'
    config = head + _declared("input", inputs) + _declared("output", outputs)
    (folder / "config.pbtxt").write_text(f"{config}ensemble_scheduling {{\n{''.join(steps)}}}\n")


X, Y, T = "X:FP32:-1", "Y:FP32:-1", "Y:BYTES:1"


def write_repository(repository: Path) -> None:
    """The members and the ensembles."""
    _member(repository, "add", "add", 8, X, Y, "dynamic_batching { }\n")
    _member(repository, "flat", "add", 0, X, Y)
    _member(repository, "rows", "add", 0, "X:FP32:-1,4", "Y:FP32:-1,4")
    _member(repository, "five", "add", 8, "X:FP32:5", "Y:FP32:5")
    _member(repository, "join", "total", 8, "A:FP32:-1 B:FP32:-1", Y)
    _member(repository, "names", "names", 8, "A:FP32:-1:optional B:FP32:-1:optional", T)
    _member(repository, "broken", "broken", 8, X, Y)
    _member(repository, "half", "half", 8, X, f"{Y} Z:FP32:-1")
    _member(repository, "said", "said", 8, X, T)
    _member(repository, "count", "count", 0, X, Y, DECOUPLED)
    _member(repository, "kinds", "add", 8, "X:FP32:3", "Y:FP32:3:labels")
    (repository / "kinds" / "labels.txt").write_text("cat\ndog\nfox\n")

    def ensemble(name: str, batch: int, inputs: str, outputs: str, *steps: str) -> None:
        write_ensemble(repository, name, batch, inputs, outputs, *steps)

    ensemble("chain", 8, X, Y, step("add", "X=X", "Y=t"), step("add", "X=t", "Y=u"), step("add", "X=u", "Y=Y"))
    ensemble("branches", 8, X, Y, step("add", "X=X", "Y=a"), step("add", "X=a", "Y=b"), step("join", "A=a B=b", "Y=Y"))
    ensemble("flat_in_batched", 8, X, Y, step("flat", "X=X", "Y=Y"))
    ensemble("rows_in_batched", 8, "X:FP32:4", "Y:FP32:4", step("rows", "X=X", "Y=Y"))
    ensemble("batched_in_flat", 0, X, Y, step("add", "X=X", "Y=Y"))
    ensemble("batched_in_rows", 0, "X:FP32:-1,4", "Y:FP32:-1,4", step("add", "X=X", "Y=Y"))
    ensemble("any_to_five", 8, X, "Y:FP32:5", step("add", "X=X", "Y=t"), step("five", "X=t", "Y=Y"))
    ensemble("outer", 8, X, Y, step("chain", "X=X", "Y=t"), step("any_chain", "X=t", "Y=Y"))
    ensemble("any_chain", 8, X, Y, step("add", "X=X", "Y=Y"))
    ensemble("breaks", 8, X, Y, step("add", "X=X", "Y=t"), step("broken", "X=t", "Y=Y"))
    ensemble("breaks_beside", 8, X, f"{Y} Z:FP32:-1", step("add", "X=X", "Y=Y"), step("broken", "X=X", "Y=Z"))
    ensemble("halved", 8, X, f"{Y} Z:FP32:-1", step("half", "X=X", "Y=Y Z=Z"))
    ensemble("halved_on", 8, X, f"{Y} C:FP32:-1", step("half", "X=X", "Y=Y Z=z"), step("add", "X=z", "Y=C"))
    ensemble("halved_maybe", 8, X, T, step("half", "X=X", "Y=y Z=z"), step("names", "A=y B=z", "Y=Y"))
    both = "A:FP32:-1:optional B:FP32:-1:optional"
    ensemble("optional", 8, both, T, step("names", "A=A B=B", "Y=Y"))
    ensemble("needed", 8, "A:FP32:-1:optional", Y, step("add", "X=A", "Y=Y"))
    ensemble("tells", 8, X, f"{T} Z:BYTES:1", step("said", "X=X", "Y=Y"), step("add", "X=X", "Y=t"),
             step("said", "X=t", "Y=Z"))  # fmt: skip
    ensemble("classes", 8, "X:FP32:3", "Y:FP32:3", step("add", "X=X", "Y=t"), step("kinds", "X=t", "Y=Y"))
    ensemble("outer_classes", 8, "X:FP32:3", "Y:FP32:3", step("classes", "X=X", "Y=Y"))
    ensemble("streams", 0, X, Y, step("count", "X=X", "Y=t"), step("flat", "X=t", "Y=Y"))
    ensemble("streams_later", 0, X, Y, step("flat", "X=X", "Y=t"), step("count", "X=t", "Y=Y"))
    ensemble("streams_twice", 0, X, Y, step("count", "X=X", "Y=t"), step("count", "X=t", "Y=Y"))


def _x(*shape: int, name: str = "X") -> dict[str, Any]:
    count = 1
    for size in shape:
        count *= size
    data = [float(number) for number in range(count)]
    return {"name": name, "shape": list(shape), "datatype": "FP32", "data": data}


def questions() -> list[tuple[str, str, dict[str, Any]]]:
    """Path below ``/v2/models``, a name for the test, and the body."""
    asked: list[tuple[str, str, dict[str, Any]]] = []

    def infer(model: str, *inputs: dict[str, Any], **rest: Any) -> None:
        asked.append((f"{model}/infer", f"{model}-{len(asked)}", {**rest, "inputs": list(inputs)}))

    for model in ("chain", "branches", "outer", "breaks", "halved", "halved_on", "halved_maybe"):
        infer(model, _x(2, 3))
    for model in ("flat_in_batched", "rows_in_batched", "any_to_five"):
        infer(model, _x(1, 4))
        infer(model, _x(2, 4))
    infer("any_to_five", _x(1, 5))
    infer("batched_in_flat", _x(3))
    infer("batched_in_rows", _x(1, 4))
    infer("batched_in_rows", _x(3, 4))
    infer("batched_in_rows", _x(9, 4))
    infer("chain", _x(9, 4))
    infer("breaks_beside", _x(1, 2))
    infer("breaks_beside", _x(1, 2), outputs=[{"name": "Y"}])
    infer("optional", _x(1, 2, name="A"))
    infer("optional", _x(1, 2, name="B"))
    infer("optional", _x(1, 2, name="B"), _x(1, 2, name="A"))
    infer("needed")
    infer("needed", _x(1, 2, name="A"))
    told = {"note": "a", "number": 3, "timeout": 7_000_000}
    infer("tells", _x(1, 2), id="mine", parameters={**told, "sequence_id": 5, "sequence_start": True})
    infer("tells", _x(1, 2), id="mine", parameters={"sequence_id": "s", "sequence_end": True})
    for model in ("classes", "outer_classes"):
        infer(model, _x(2, 3), outputs=[{"name": "Y", "parameters": {"classification": 2}}])
    infer("streams", _x(1))
    for model in ("streams", "streams_later", "streams_twice"):
        for number in (0, 1, 3):
            asked.append((f"{model}/generate_stream", f"{model}-{number}", {"X": [float(number)]}))
    return asked


def answers() -> dict[str, dict[str, Any]]:
    """What the real Triton answered, by name of the question: ``status`` and ``body``."""
    recorded: dict[str, dict[str, Any]] = json.loads(DATA.read_text("utf-8"))
    return recorded
