"""Writes model folders small enough to load in no time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DATATYPES = (
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "BF16",
    "BYTES",
)


def config_name(datatype: str) -> str:
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def declared(kind: str, name: str, datatype: str = "FP32", dims: str = "[ -1 ]", more: str = "") -> str:
    """One ``input`` or ``output`` of a config."""
    return f'{kind} {{ name: "{name}" data_type: {config_name(datatype)} dims: {dims} {more} }}\n'


def x_to_y(datatype: str = "FP32", dims: str = "[ -1 ]", more: str = "") -> str:
    """Input X and output Y, alike; ``more`` belongs to the output."""
    return declared("input", "X", datatype, dims) + declared("output", "Y", datatype, dims, more)


def parameters(**values: str) -> str:
    """The ``parameters`` of a config."""
    return "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in values.items()
    )


def write_model(
    repository: Path, name: str, config: str | None = None, version: int = 1, **files: bytes | str | onnx.ModelProto
) -> Path:
    """A model folder with ``config.pbtxt`` (none for None) and, in ``version``, files such as ``model_onnx=...``.

    The last underscore of a keyword stands for the dot. Returns the folder.
    """
    folder = repository / name
    (folder / str(version)).mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.pbtxt").write_text(config, encoding="utf-8")
    for keyword, content in files.items():
        path = folder / str(version) / ".".join(keyword.rsplit("_", 1))
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    return folder


def write_identity(repository: Path, name: str, datatype: str = "FP32", dims: str = "[ -1 ]", more: str = "") -> Path:
    """A model that answers Y = X."""
    return write_model(repository, name, f'backend: "identity"\n{x_to_y(datatype, dims)}{more}')


def onnx_model(inputs: Sequence[Any], outputs: Sequence[Any], nodes: Sequence[Any], *weights: Any) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), initializer=list(weights))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def floats(name: str, shape: Sequence[Any]) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def onnx_identity(shape: Sequence[Any], element: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Y = X."""
    value = helper.make_tensor_value_info
    return onnx_model(
        [value("X", element, shape)], [value("Y", element, shape)], [helper.make_node("Identity", ["X"], ["Y"])]
    )


def onnx_mark(mark: float, shape: Sequence[Any] = ("N", 2)) -> onnx.ModelProto:
    """``first`` = ``second`` = X + ``mark``: which file answered shows in every number of both outputs."""
    weight = numpy_helper.from_array(np.float32(mark), "mark")
    nodes = [helper.make_node("Add", ["X", "mark"], ["first"]), helper.make_node("Add", ["mark", "X"], ["second"])]
    return onnx_model([floats("X", shape)], [floats("first", shape), floats("second", shape)], nodes, weight)
