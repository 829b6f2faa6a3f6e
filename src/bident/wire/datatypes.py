"""The v2 datatypes: one table from which every other spelling of a datatype is derived."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DataType:
    """A tensor element type.

    ``name`` is the word on the wire (``FP32``), ``config_name`` the word in ``config.pbtxt``
    (``TYPE_FP32``), ``size`` the bytes per element (0 for BYTES, whose elements vary).
    ``numpy`` is little-endian; BYTES tensors are object arrays of ``bytes``.
    """

    name: str
    config_name: str
    numpy: np.dtype[Any]
    size: int


def _bfloat16() -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def _table() -> dict[str, DataType]:
    fixed = {
        "BOOL": np.dtype(np.bool_),
        "UINT8": np.dtype("u1"),
        "UINT16": np.dtype("<u2"),
        "UINT32": np.dtype("<u4"),
        "UINT64": np.dtype("<u8"),
        "INT8": np.dtype("i1"),
        "INT16": np.dtype("<i2"),
        "INT32": np.dtype("<i4"),
        "INT64": np.dtype("<i8"),
        "FP16": np.dtype("<f2"),
        "FP32": np.dtype("<f4"),
        "FP64": np.dtype("<f8"),
        "BF16": _bfloat16(),
    }
    table = {name: DataType(name, f"TYPE_{name}", dtype, dtype.itemsize) for name, dtype in fixed.items()}
    table["BYTES"] = DataType("BYTES", "TYPE_STRING", np.dtype(object), 0)
    return table


DATATYPES: dict[str, DataType] = _table()
"""Wire name -> datatype."""

BY_CONFIG_NAME: dict[str, DataType] = {datatype.config_name: datatype for datatype in DATATYPES.values()}
"""``config.pbtxt`` name -> datatype."""

BYTES = DATATYPES["BYTES"]
BOOL = DATATYPES["BOOL"]
FP32 = DATATYPES["FP32"]

_BY_NUMPY: dict[np.dtype[Any], DataType] = {datatype.numpy: datatype for datatype in DATATYPES.values()}


@lru_cache(maxsize=256)
def from_numpy(dtype: np.dtype[Any]) -> DataType | None:
    """The datatype that carries numpy's ``dtype``; strings of any kind are BYTES; None if there is none."""
    if dtype.kind in "SUOT":
        return BYTES
    return _BY_NUMPY.get(dtype.newbyteorder("<"))
