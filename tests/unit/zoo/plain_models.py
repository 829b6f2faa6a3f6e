"""Runs the Python models and ensembles of the zoo in this process, with as little of ``pb_utils`` as they use."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from numpy.typing import NDArray

from bident.errors import Code, ServeError
from bident.zoo.recipe import Tensors

Answer = dict[str, NDArray[Any]]


class Tensor:
    def __init__(self, name: str, array: NDArray[Any]) -> None:
        self.name, self.array = name, array

    def as_numpy(self) -> NDArray[Any]:
        return self.array


class Error:
    INVALID_ARG = Code.INVALID_ARG

    def __init__(self, message: str, code: Code) -> None:
        self.message, self.code = message, code


class Response:
    def __init__(self, output_tensors: Any = (), error: Error | None = None) -> None:
        self.tensors, self.error = output_tensors, error


class Request:
    def __init__(self, inputs: Tensors, parameters: dict[str, Any]) -> None:
        self.inputs = inputs
        self._parameters = parameters

    def parameters(self) -> str:
        return json.dumps(self._parameters)


PB_UTILS = SimpleNamespace(
    Tensor=Tensor,
    TritonError=Error,
    InferenceResponse=Response,
    get_input_tensor_by_name=lambda request, name: Tensor(name, request.inputs[name]),
)


def run_python(folder: Path, config: Any, inputs: Tensors, **parameters: Any) -> Answer:
    """What ``model.py`` in ``folder`` answers. Raises its error."""
    version = folder / "1"
    siblings = {path.stem for path in version.glob("*.py")}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(version))
        patch.setitem(sys.modules, "triton_python_backend_utils", PB_UTILS)
        for name in siblings:
            patch.delitem(sys.modules, name, raising=False)
        spec = importlib.util.spec_from_file_location("model_under_test", version / "model.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name in siblings:
            sys.modules.pop(name, None)
    model = module.TritonPythonModel()
    described = json_format.MessageToJson(config, preserving_proto_field_name=True)
    model.initialize({"model_config": described, "model_repository": str(folder), "model_version": "1"})
    (response,) = model.execute([Request(inputs, parameters)])
    if response.error:
        raise ServeError(response.error.code, response.error.message)
    return {tensor.name: _sent(tensor.array) for tensor in response.tensors}


def _sent(array: NDArray[Any]) -> NDArray[Any]:
    """``array`` as it travels: text as bytes."""
    if array.dtype != object:
        return array
    items = [item.encode() if isinstance(item, str) else item for item in array.reshape(-1)]
    return np.array(items, dtype=object).reshape(array.shape)


def run_ensemble(
    folder: Path, config: Any, inputs: Tensors, run: Callable[[Path, Tensors], Answer], batches: Callable[[Path], bool]
) -> Answer:
    """The steps of an ensemble in their order; a member that batches gets and loses a batch of one where needed."""
    tensors = dict(inputs)
    for step in config.ensemble_scheduling.step:
        member = folder.parent / step.model_name
        wraps = batches(member) and not config.max_batch_size
        given = {name: tensors[tensor] for name, tensor in step.input_map.items()}
        answer = run(member, {name: array[None] if wraps else array for name, array in given.items()})
        for name, tensor in step.output_map.items():
            tensors[tensor] = answer[name][0] if wraps else answer[name]
    return {declared.name: tensors[declared.name] for declared in config.output}
