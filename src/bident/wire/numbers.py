"""Numbers that came as JSON to tensor elements: what fits a datatype, and how it is rounded.

A JSON number is a 64-bit integer or a double. Integers fit exactly or not at all. Floating-point
datatypes take the nearest value, ties to even, and refuse what would become infinite.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from bident.errors import ServeError, invalid_arg
from bident.wire.datatypes import DATATYPES, DataType
from bident.wire.shown import shown

_BF16 = DATATYPES["BF16"]

_AT_ONCE = 65536
"""Longer lists are converted in parts: between two of them other threads get their turn."""


def _overflow(datatype: DataType) -> float:
    """From this magnitude on numbers round to infinity: half a step beyond the largest finite value."""
    about: Any = ml_dtypes.finfo(datatype.numpy)  # type: ignore[no-untyped-call]
    return float(2.0**about.maxexp * (1 - 2.0 ** -(about.nmant + 2)))


_OVERFLOW = {name: _overflow(DATATYPES[name]) for name in ("FP16", "FP32", "BF16")}

_CODES = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}
"""The letters of ``struct``, which packs a list in half the time that numpy takes and refuses what does not fit."""


@lru_cache(maxsize=1024)
def _packer(code: str, count: int) -> struct.Struct:
    return struct.Struct(f"<{count}{code}")


def to_array(name: str, datatype: DataType, values: list[Any]) -> NDArray[Any]:
    """The flat list of JSON numbers, bools or byte strings as an array of ``datatype``, perhaps read-only.

    Raises INVALID_ARG naming the input when a number does not fit the datatype.
    """
    if len(values) > _AT_ONCE:
        starts = range(0, len(values), _AT_ONCE)
        return np.concatenate([to_array(name, datatype, values[start : start + _AT_ONCE]) for start in starts])
    code = _CODES.get(datatype.name)
    try:
        if code is not None:
            return np.frombuffer(_packer(code, len(values)).pack(*values), datatype.numpy)
        if datatype is not _BF16:
            return np.array(values, dtype=datatype.numpy)
        limit = _OVERFLOW["BF16"]
        if values and not (-limit < min(values) and max(values) < limit):
            raise _out_of_range(name, datatype)
        return _to_bfloat16(np.array(values, dtype=np.float64))
    except (OverflowError, struct.error) as error:
        raise _out_of_range(name, datatype) from error


def narrow(name: str, datatype: DataType, wide: NDArray[Any]) -> NDArray[Any]:
    """What :func:`to_array` gives, for JSON numbers that already are an array of 64-bit values."""
    if wide.dtype == datatype.numpy:
        return wide
    if wide.dtype.kind == "f":
        limit = _OVERFLOW[datatype.name]
        if wide.size and not (-limit < wide.min() and wide.max() < limit):
            raise _out_of_range(name, datatype)
        return _to_bfloat16(wide) if datatype is _BF16 else wide.astype(datatype.numpy)
    bounds = np.iinfo(datatype.numpy)
    if wide.size and (int(wide.min()) < bounds.min or int(wide.max()) > bounds.max):
        raise _out_of_range(name, datatype)
    return wide.astype(datatype.numpy)


def _to_bfloat16(doubles: NDArray[Any]) -> NDArray[Any]:
    """The nearest bfloat16 of each double.

    The way there is through float32, and rounding twice would miss: so the first step rounds to
    odd, whose last bit remembers that something was cut off.
    """
    singles = doubles.astype(np.float32)
    exact = singles.astype(np.float64)
    bits = singles.view(np.uint32)
    bits -= np.abs(exact) > np.abs(doubles)  # back towards zero, whichever way numpy rounded
    bits |= exact != doubles
    return singles.astype(_BF16.numpy)


def _out_of_range(name: str, datatype: DataType) -> ServeError:
    return invalid_arg(
        f"Unable to parse 'data': a value of input {shown(name)} is out of range for {datatype.name}; "
        f"send it in a wider datatype, or correct the value"
    )
