"""Requests to one batch, one batch to answers: tensors are joined once and split once.

``gather`` turns the inputs of a batch's requests into the arrays an instance sees; ``scatter`` turns
the arrays it returned into one :class:`~bident.wire.infer.Column` per output, of which each answer
is a slice.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from bident.errors import Code, ServeError, invalid_arg
from bident.model.config import ModelConfig, TensorSpec
from bident.wire.datatypes import DATATYPES, DataType, from_numpy
from bident.wire.infer import Column, InferInput, InferRequest


def _overflow(datatype: DataType) -> float:
    """From this magnitude on numbers round to infinity: half a step beyond the largest finite value."""
    about: Any = ml_dtypes.finfo(datatype.numpy)  # type: ignore[no-untyped-call]
    return float(2.0**about.maxexp * (1 - 2.0 ** -(about.nmant + 2)))


_OVERFLOW = {name: _overflow(DATATYPES[name]) for name in ("FP16", "FP32", "BF16")}


def to_array(name: str, datatype: DataType, values: list[Any]) -> NDArray[Any]:
    """The flat list of JSON numbers, bools or byte strings as an array of ``datatype``.

    Raises INVALID_ARG naming the input when a number does not fit the datatype.
    """
    limit = _OVERFLOW.get(datatype.name)
    if limit is not None and values and not (-limit < min(values) and max(values) < limit):
        raise _out_of_range(name, datatype)
    try:
        return np.array(values, dtype=datatype.numpy)
    except OverflowError as error:
        raise _out_of_range(name, datatype) from error


def _out_of_range(name: str, datatype: DataType) -> ServeError:
    return invalid_arg(
        f"Unable to parse 'data': a value of input '{name}' is out of range for {datatype.name}; "
        f"send it in a wider datatype, or correct the value"
    )


def gather(config: ModelConfig, requests: list[InferRequest], rows: int) -> dict[str, NDArray[Any]]:
    """The batch's input arrays by name, in the model's own shapes.

    With ``max_batch_size`` > 0 the first axis has ``rows`` entries. All requests carry the same
    inputs (the batch policy saw to that). Raises INVALID_ARG when a JSON number is out of range.
    """
    alone = len(requests) == 1
    arrays = {
        name: _single(first) if alone else _joined(name, first, requests, rows)
        for name, first in requests[0].inputs.items()
    }
    for name, spec in config.reshaped_inputs.items():
        if name in arrays:
            arrays[name] = _to_model_shape(config, spec, arrays[name])
    return arrays


def _single(tensor: InferInput) -> NDArray[Any]:
    data = tensor.data
    if type(data) is list:
        return to_array(tensor.name, tensor.datatype, data).reshape(tensor.shape)
    return data  # type: ignore[return-value]


def _joined(name: str, first: InferInput, requests: list[InferRequest], rows: int) -> NDArray[Any]:
    tensors = [request.inputs[name] for request in requests]
    if all(type(tensor.data) is list for tensor in tensors):
        values: list[Any] = []
        for tensor in tensors:
            values += tensor.data
        return to_array(name, first.datatype, values).reshape((rows, *first.shape[1:]))
    return np.concatenate([_single(tensor) for tensor in tensors])


def _to_model_shape(config: ModelConfig, spec: TensorSpec, array: NDArray[Any]) -> NDArray[Any]:
    lead = 1 if config.max_batch_size else 0
    shape = _map_dims(spec.dims, spec.model_dims, array.shape[lead:])
    return array.reshape(array.shape[:lead] + shape)


def _map_dims(source: tuple[int, ...], target: tuple[int, ...], actual: tuple[int, ...]) -> tuple[int, ...]:
    """``target`` with its wildcards replaced by the sizes that ``actual`` has at ``source``'s wildcards."""
    if -1 not in target:
        return target
    sizes = iter([size for dim, size in zip(source, actual, strict=True) if dim == -1])
    return tuple(next(sizes) if dim == -1 else dim for dim in target)


def scatter(config: ModelConfig, arrays: dict[str, NDArray[Any]], rows: int) -> list[Column]:
    """The outputs of one execution, in declared order, in the client's shapes.

    Raises INTERNAL naming the output when the model returned a datatype or shape other than the
    declared one: an answer's datatype word always matches its bytes.
    """
    columns: list[Column] = []
    for name, spec in config.outputs.items():
        array = arrays.get(name)
        if array is None:
            continue
        if array.dtype is not spec.datatype.numpy and from_numpy(array.dtype) is not spec.datatype:
            raise _bad_output(config, name, f"has datatype {_word(array)}", spec.datatype.name)
        lead: tuple[int, ...] = ()
        if config.max_batch_size:
            lead = array.shape[:1]
            if lead != (rows,):
                raise _bad_output(config, name, f"has shape {list(array.shape)}", f"a first dimension of {rows}")
        if spec.reshape is not None:
            array = array.reshape(lead + _map_dims(spec.model_dims, spec.dims, array.shape[len(lead) :]))
        if array.shape != lead + spec.dims:
            _check_dims(config, spec, array.shape[len(lead) :])
        columns.append(Column(name, spec.datatype, array))
    return columns


def _word(array: NDArray[Any]) -> str:
    datatype = from_numpy(array.dtype)
    return datatype.name if datatype else str(array.dtype)


def _check_dims(config: ModelConfig, spec: TensorSpec, actual: tuple[int, ...]) -> None:
    if len(actual) != len(spec.dims) or any(d not in (-1, a) for d, a in zip(spec.dims, actual, strict=True)):
        raise _bad_output(config, spec.name, f"has shape {list(actual)} (without the batch)", f"{list(spec.dims)}")


def _bad_output(config: ModelConfig, name: str, found: str, declared: str) -> ServeError:
    return ServeError(
        Code.INTERNAL,
        f"output '{name}' of model '{config.name}' {found}, but its config declares {declared}; correct config.pbtxt",
    )


def wanted_columns(request: InferRequest, columns: list[Column]) -> list[Column]:
    """The columns that ``request`` names, in its order.

    Raises INTERNAL when it asks for an output that the model did not produce.
    """
    by_name = {column.name: column for column in columns}
    try:
        return [by_name[name] for name in request.outputs or ()]
    except KeyError as missing:
        raise ServeError(
            Code.INTERNAL, f"model '{request.model_name}' produced no output {missing}, which the request asks for"
        ) from None
