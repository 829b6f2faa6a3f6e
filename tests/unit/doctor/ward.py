"""Model folders with something wrong, the doctor at work on them, and whether they then really load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from bident.backends.discovery import Backends
from bident.doctor.check import Finding, Patient
from bident.doctor.examination import examine, selected, treat
from bident.engine.loader import Loader
from bident.model.folder import ModelFolder

X_TO_Y = """
backend: "onnxruntime"
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 3 ] } ]
"""
PYTHON = """
backend: "python"
max_batch_size: 4
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "LABEL" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
MODEL_PY = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.answer(request)]) for request in requests]

    def answer(self, request):
        return pb_utils.Tensor("LABEL", pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy())
"""


def identity_onnx(*shape: Any, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """``x`` to ``y``, unchanged."""
    tensors = [helper.make_tensor_value_info(name, kind, shape or ("N", 3)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", tensors[:1], tensors[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def write(repository: Path, name: str, config: str | bytes | None) -> Path:
    """A model folder with a configuration, or without."""
    folder = repository / name
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.pbtxt").write_bytes(config.encode() if isinstance(config, str) else config)
    return folder


def put(folder: Path, place: str, content: str | bytes | onnx.ModelProto) -> Path:
    """One file of a model folder."""
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, onnx.ModelProto):
        content = content.SerializeToString()
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def onnx_folder(repository: Path, name: str = "m", config: str | bytes | None = X_TO_Y, model: Any = None) -> Path:
    """A model folder with ``model``, else one that fits ``X_TO_Y``, as its version 1."""
    folder = write(repository, name, config)
    put(folder, "1/model.onnx", identity_onnx() if model is None else model)
    return folder


def python_folder(
    repository: Path, source: str | bytes = MODEL_PY, config: str | bytes = PYTHON, name: str = "m"
) -> Path:
    """A Python model with ``source`` as its version 1."""
    folder = write(repository, name, config)
    put(folder, "1/model.py", source)
    return folder


def seen(repository: Path, *names: str, target: str = "") -> list[Finding]:
    """What the checks called ``names``, all of them if there are none, find in ``repository``."""
    found = examine(Patient(repository=repository, target=target), selected(only_path=True))
    assert not any("could not be finished" in finding.seen for finding in found), found
    return [finding for finding in found if not names or finding.check in names]


def only_seen(repository: Path, name: str, target: str = "") -> Finding:
    """The one finding of the check ``name``."""
    found = seen(repository, name, target=target)
    assert len(found) == 1, seen(repository, target=target)
    assert all((found[0].where, found[0].seen, found[0].cause, found[0].cure))
    return found[0]


def cure(repository: Path, target: str = "") -> list[Finding]:
    """Apply every cure there is; what is still found."""
    patient, chosen = Patient(repository=repository, target=target), selected(only_path=True)
    treated, left = treat(patient, chosen, examine(patient, chosen))
    assert treated
    assert not [done for done in treated if done.problem], treated
    return left


def load(folder: Path) -> Any:
    """The loaded model; raises what keeps Bident from loading it."""
    return Loader(Backends()).load(ModelFolder(folder.name, folder))


def answer(folder: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """What the newest version of the model answers."""
    loaded = load(folder)
    instances = loaded.instances[max(loaded.instances)]
    return dict(instances[0].execute(inputs))
