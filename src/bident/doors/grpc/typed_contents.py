"""The typed form of a tensor, ``InferTensorContents``: one list of numbers, bools or strings for each width."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.doors.declared_tensors import LIST_LIMIT
from bident.errors import ServeError, invalid_arg
from bident.wire.datatypes import BYTES, DataType
from bident.wire.numbers import narrow
from bident.wire.shown import shown

_FIELDS: dict[str, tuple[str, ...]] = {
    "bool_contents": ("BOOL",),
    "int_contents": ("INT32", "INT8", "INT16"),
    "int64_contents": ("INT64",),
    "uint_contents": ("UINT32", "UINT8", "UINT16"),
    "uint64_contents": ("UINT64",),
    "fp32_contents": ("FP32",),
    "fp64_contents": ("FP64",),
    "bytes_contents": ("BYTES",),
}
"""The datatypes that each field carries; the first is what Triton calls the field."""

_FIELD_OF: dict[str, str] = {word: field for field, words in _FIELDS.items() for word in words}


def read(
    model: str, name: str, datatype: DataType, shape: tuple[int, ...], count: int, contents: Any
) -> list[Any] | NDArray[Any]:
    """The elements in ``contents`` of the input ``name``: an array of ``shape``, or for small ones a flat list.

    Raises INVALID_ARG, in the words of Triton's ``infer_handler.cc``, when they are in another field than the
    datatype's or are not ``count`` many, and when one does not fit the datatype.
    """
    filled = [field for field in _FIELDS if len(getattr(contents, field))]
    if filled and datatype.name not in _FIELDS[filled[0]]:
        raise _wrong_field(model, name, datatype, filled[0])
    if len(filled) > 1:
        raise invalid_arg(
            f"unexpected explicit tensor data for input tensor {shown(name)} for model {shown(model)}, binary data was "
            f"already supplied: of {' and '.join(filled)} only {filled[0]} may be filled"
        )
    values = getattr(contents, filled[0]) if filled else ()
    if len(values) != count:
        raise _wrong_count(model, name, datatype, shape, count, len(values))
    if not filled:
        return np.empty(shape, dtype=datatype.numpy)
    if count <= LIST_LIMIT:
        return list(values)
    return _array(name, datatype, values).reshape(shape)


def _array(name: str, datatype: DataType, values: Any) -> NDArray[Any]:
    if datatype is BYTES:
        strings: NDArray[Any] = np.empty(len(values), dtype=object)
        strings[:] = values
        return strings
    if datatype.size < 4 and datatype.numpy.kind in "iu":
        return narrow(name, datatype, np.array(values, dtype=np.int64))
    return np.array(values, dtype=datatype.numpy)


def _wrong_field(model: str, name: str, datatype: DataType, field: str) -> ServeError:
    own = _FIELD_OF.get(datatype.name)
    cure = f"put its elements into {own}" if own else f"{datatype.name} can only be sent in raw_input_contents"
    return invalid_arg(
        f"unexpected explicit tensor data for input tensor {shown(name)} for model {shown(model)} of type "
        f"'{_FIELDS[field][0]}', expected datatype '{datatype.name}': {field} is filled; {cure}"
    )


def _wrong_count(
    model: str, name: str, datatype: DataType, shape: tuple[int, ...], count: int, given: int
) -> ServeError:
    shape_says = (
        f"shape {list(shape)} is {count} elements, and {given} are in {_FIELD_OF.get(datatype.name, 'contents')}"
    )
    if datatype is BYTES:
        return invalid_arg(
            f"expected {count} string elements for inference input {shown(name)}, got {given}: {shape_says}"
        )
    size = datatype.size
    return invalid_arg(
        f"input byte size mismatch for input {shown(name)} for model {shown(model)}. Expected {count * size}, "
        f"got {given * size}: {shape_says}"
    )
