"""Builds tiny ONNX models and the folders that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf import text_format
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bident.backends.base import BackendOptions, Device, Instance, ModelFiles
from bident.backends.onnx import OnnxBackend
from bident.model.config import ModelConfig
from bident.model.proto import pb

NAME = "m"

ONNX_TYPES = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16,
    "BYTES": TensorProto.STRING,
}
"""v2 datatype -> ONNX element type."""

value = helper.make_tensor_value_info
node = helper.make_node


def model(inputs: Sequence[Any], outputs: Sequence[Any], nodes: Sequence[Any], *weights: Any) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), initializer=list(weights))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def weight(name: str, array: NDArray[Any]) -> Any:
    return numpy_helper.from_array(array, name)


def identity(datatype: str = "FP32", shape: Sequence[Any] | None = ("N", 3)) -> onnx.ModelProto:
    """``x`` to ``y``, unchanged."""
    kind = ONNX_TYPES[datatype]
    return model([value("x", kind, shape)], [value("y", kind, shape)], [node("Identity", ["x"], ["y"])])


def add(left: Sequence[Any] = ("N", 2), right: Sequence[Any] = ("N", 2)) -> onnx.ModelProto:
    """``sum`` = ``left`` + ``right``, ``difference`` = ``left`` - ``right``."""
    return model(
        [value("left", TensorProto.FLOAT, left), value("right", TensorProto.FLOAT, right)],
        [value("sum", TensorProto.FLOAT, left), value("difference", TensorProto.FLOAT, left)],
        [node("Add", ["left", "right"], ["sum"]), node("Sub", ["left", "right"], ["difference"])],
    )


def matmul(shape: Sequence[Any] = ("N", 3)) -> onnx.ModelProto:
    """``x`` times the 3 x 3 matrix ``w`` of twos on the diagonal."""
    return model(
        [value("x", TensorProto.FLOAT, shape)],
        [value("y", TensorProto.FLOAT, ["N", 3])],
        [node("MatMul", ["x", "w"], ["y"])],
        weight("w", 2 * np.eye(3, dtype=np.float32)),
    )


def folder(directory: Path, content: onnx.ModelProto | bytes) -> ModelFiles:
    """A model folder ``m`` under ``directory`` whose version 1 holds ``content`` as ``model.onnx``."""
    files = ModelFiles(directory / NAME, 1)
    files.version_directory.mkdir(parents=True, exist_ok=True)
    raw = content if isinstance(content, bytes) else content.SerializeToString()
    (files.version_directory / "model.onnx").write_bytes(raw)
    return files


def config(text: str = "") -> ModelConfig:
    """The declaration of ``m`` in protobuf text format."""
    return ModelConfig.from_proto(text_format.Parse(f'name: "{NAME}" backend: "onnxruntime" {text}', pb.ModelConfig()))


def tensors(kind: str, *declared: tuple[str, str, str]) -> str:
    """``input``/``output`` entries in text format: name, TYPE_..., dims (with whatever follows)."""
    return "".join(
        f' {kind} {{ name: "{name}" data_type: TYPE_{type_} dims: {dims} }} ' for name, type_, dims in declared
    )


def x_to_y(dims: str = "[ 3 ]", max_batch_size: int = 4, datatype: str = "FP32") -> str:
    """The declaration that fits :func:`identity`."""
    return f"max_batch_size: {max_batch_size} {tensors('input', ('x', datatype, dims))} " + tensors(
        "output", ("y", datatype, dims)
    )


def load(files: ModelFiles, declared: ModelConfig, threads: int = 1, own: dict[str, str] | None = None) -> Instance:
    return OnnxBackend(BackendOptions(own=own or {})).load(files, declared, Device(threads=threads))


def complete(files: ModelFiles, declared: ModelConfig, own: dict[str, str] | None = None) -> ModelConfig:
    return OnnxBackend(BackendOptions(own=own or {})).complete(files, declared)
