"""Checks of declared inputs and outputs: names, datatypes, shapes, reshapes, batch tensors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from bident.model.confine import escapes
from bident.model.hints import did_you_mean, listed
from bident.model.proto import pb
from bident.model.subject import Subject

_TYPES = [name for name in pb.DataType.keys() if name != "TYPE_INVALID"]  # noqa: SIM118 - not a dict

_MOST_TENSORS = 10_000
_MOST_DIMS = 64
"""What an array can have (numpy), the batch dimension included."""


def check_tensors(subject: Subject) -> None:
    """Check ``input``, ``output``, ``batch_input`` and ``batch_output``."""
    proto = subject.proto
    for side, tensors in (("input", proto.input), ("output", proto.output)):
        if len(tensors) > _MOST_TENSORS:
            subject.refuse(
                f"model {subject.name} declares {len(tensors)} {side}s", f"declare at most {_MOST_TENSORS} of them"
            )
        for tensor in tensors:
            _check_tensor(subject, f"model {side} ", tensor)
        _check_unique(subject, side, [tensor.name for tensor in tensors])
    for tensor in proto.input:
        _check_format(subject, tensor)
    for tensor in proto.output:
        if tensor.label_filename and escapes(tensor.label_filename):
            subject.refuse(
                f"label_filename '{tensor.label_filename}' of output '{tensor.name}' must stay within model directory",
                "move the file beside config.pbtxt",
            )
    for tensor in proto.batch_input:
        _check_batch_input(subject, tensor)
    for tensor in proto.batch_output:
        _check_batch_output(subject, tensor)


def check_datatype(subject: Subject, label: str, datatype: int) -> None:
    """Refuse a missing or unknown ``data_type``; ``label`` says whose it is, with a trailing space."""
    if datatype == pb.TYPE_INVALID or datatype not in pb.DataType.values():
        subject.refuse(f"{label}must specify 'data_type' for {subject.name}", f"add one of {', '.join(_TYPES)}")


def _check_tensor(subject: Subject, label: str, tensor: Any) -> None:
    if not tensor.name:
        subject.refuse(f"{label}must specify 'name' for {subject.name}", 'add name: "..."')
    label = f"{label}'{tensor.name}' "
    check_datatype(subject, label, tensor.data_type)
    if not tensor.dims:
        subject.refuse(
            f"{label}must specify 'dims' for {subject.name}",
            "add its shape without the batch dimension, such as dims: [ 3, 224, 224 ]; -1 is any size",
        )
    if tensor.HasField("reshape") and not tensor.reshape.shape and subject.proto.max_batch_size == 0:
        subject.refuse(
            f"{label}cannot have empty reshape for non-batching model as scalar tensors are not supported for "
            f"{subject.name}",
            "give reshape a shape, or set max_batch_size",
        )
    check_count(subject, f"{label}dims", tensor.dims)
    check_dims(subject, f"{label}dimension", tensor.dims)
    if tensor.HasField("reshape"):
        check_count(subject, f"{label}reshape", tensor.reshape.shape)
        check_dims(subject, f"{label}reshape dimensions", tensor.reshape.shape)
        _check_reshape(subject, label, list(tensor.dims), list(tensor.reshape.shape))
    _check_tensorrt_only(subject, label, tensor)


def check_count(subject: Subject, label: str, dims: Sequence[int]) -> None:
    """Refuse more dimensions than an array can have."""
    batch = 1 if subject.proto.max_batch_size > 0 else 0
    if len(dims) + batch > _MOST_DIMS:
        subject.refuse(
            f"{label} has {len(dims)} dimensions for {subject.name}",
            f"write at most {_MOST_DIMS - batch}: an array has at most {_MOST_DIMS}"
            + (", one of them the batch" if batch else ""),
        )


def check_dims(subject: Subject, label: str, dims: Iterable[int]) -> None:
    """Refuse sizes that are neither -1 nor at least 1."""
    for dim in dims:
        if dim < 1 and dim != -1:
            subject.refuse(
                f"{label} must be integer >= 1, or -1 to indicate a variable-size dimension for {subject.name}",
                f"replace {dim} in {list(dims)}",
            )


def _check_reshape(subject: Subject, label: str, dims: list[int], shape: list[int]) -> None:
    """Both shapes must have the same elements, and as many between any two variable dimensions."""
    shapes = f"dims {dims} and reshape {shape} must hold the same elements"
    if (-1 in dims) and (-1 in shape) and dims.count(-1) != shape.count(-1):
        subject.refuse(
            f"{label}has different number of variable-size dimensions for dims and reshape for {subject.name}", shapes
        )
    if _trunks(dims) != _trunks(shape):
        subject.refuse(f"{label}has different size for dims and reshape for {subject.name}", shapes)


def _trunks(shape: list[int]) -> list[int]:
    """Element counts of the stretches between variable dimensions: [2, 3, -1, 4] has [6, 4]."""
    trunks: list[list[int]] = [[]]
    for dim in shape:
        if dim == -1:
            trunks.append([])
        else:
            trunks[-1].append(dim)
    return [math.prod(trunk) for trunk in trunks]


def _check_unique(subject: Subject, side: str, names: list[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        subject.refuse(
            f"model {side} {listed(twice)} is declared more than once for {subject.name}", "keep one of them"
        )


def _check_tensorrt_only(subject: Subject, label: str, tensor: Any) -> None:
    if subject.proto.platform == "tensorrt_plan":
        return
    if tensor.is_shape_tensor:
        subject.refuse(
            f"shape tensors are only supported for TensorRT platform for {subject.name}",
            f"remove is_shape_tensor from {label.strip()}",
        )
    if tensor.is_non_linear_format_io:
        subject.refuse(
            f"Non-linear IO format is only supported for the TensorRT platform for {subject.name}",
            f"remove is_non_linear_format_io from {label.strip()}",
        )


def _check_format(subject: Subject, tensor: Any) -> None:
    formats = pb.ModelInput
    if tensor.format in (formats.FORMAT_NHWC, formats.FORMAT_NCHW) and len(tensor.dims) != 3:
        subject.refuse(
            f"model input NHWC/NCHW require 3 dims for {subject.name}",
            f"input '{tensor.name}' has dims {list(tensor.dims)}: remove format or write three dims",
        )


def _check_batch_input(subject: Subject, tensor: Any) -> None:
    kind = pb.BatchInput.Kind.Name(tensor.kind) if tensor.kind in pb.BatchInput.Kind.values() else str(tensor.kind)
    _check_sources(subject, f"batch input kind '{kind}'", tensor.source_input)
    if tensor.data_type not in (pb.TYPE_INT32, pb.TYPE_FP32):
        subject.refuse(
            f"batch input data type must be TYPE_INT32 or TYPE_FP32 for {subject.name}",
            f"change data_type of batch_input {listed(tensor.target_name)}",
        )


def _check_batch_output(subject: Subject, tensor: Any) -> None:
    _check_sources(subject, "batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE'", tensor.source_input)
    outputs = [output.name for output in subject.proto.output]
    known, seen = set(outputs), set()
    for target in tensor.target_name:
        if target not in known:
            subject.refuse(f"unknown target output name '{target}' for {subject.name}", did_you_mean(target, outputs))
        if target in seen:
            subject.refuse(f"target output name '{target}' can only be specified once for {subject.name}", "keep one")
        seen.add(target)


def _check_sources(subject: Subject, label: str, sources: Any) -> None:
    if len(sources) != 1:
        subject.refuse(
            f"{label} expects 1 source input, got {len(sources)} for {subject.name}", 'write source_input: "<input>"'
        )
    inputs = [tensor.name for tensor in subject.proto.input]
    if sources[0] not in inputs:
        subject.refuse(f"unknown source input name '{sources[0]}' for {subject.name}", did_you_mean(sources[0], inputs))
