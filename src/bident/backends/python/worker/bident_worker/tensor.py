"""``pb_utils.Tensor``."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import dlpack
from .arrays import DATATYPE, datatype_of
from .errors import TritonModelException

_CODES = {
    "BOOL": 1,
    "UINT8": 2,
    "UINT16": 3,
    "UINT32": 4,
    "UINT64": 5,
    "INT8": 6,
    "INT16": 7,
    "INT32": 8,
    "INT64": 9,
    "FP16": 10,
    "FP32": 11,
    "FP64": 12,
    "BYTES": 13,
    "BF16": 14,
}


class Tensor:
    """A named array."""

    __slots__ = ("_array", "_datatype", "_name")
    _array: Any
    _datatype: str
    _name: str

    def __init__(self, name: str, array: Any) -> None:
        if type(name) is not str:
            raise TypeError(f"Tensor takes a name of type str, found {type(name)}")
        if not name:
            raise TritonModelException("Tensor name cannot be an empty string.")
        if not isinstance(array, np.ndarray):
            raise TypeError(
                f"Tensor '{name}' takes a numpy.ndarray, found {type(array)}; numpy.asarray() makes one of most things"
            )
        datatype = DATATYPE.get(array.dtype)
        if datatype is None:
            datatype, array = _fitting(name, array)
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        self._name = name
        self._array = array
        self._datatype = datatype

    def name(self) -> str:
        """The tensor's name."""
        return self._name

    def as_numpy(self) -> Any:
        """The tensor as a numpy array; strings as ``bytes`` objects."""
        if self._datatype == "BF16":
            raise TritonModelException(
                "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."
            )
        return self._array

    def triton_dtype(self) -> int:
        """Triton's number of the datatype."""
        return _CODES[self._datatype]

    def shape(self) -> list[int]:
        """The dimensions."""
        return list(self._array.shape)

    def is_cpu(self) -> bool:
        """Whether the tensor lies in the processor's memory: always."""
        return True

    def to_dlpack(self) -> Any:
        """A DLPack capsule that looks at the tensor in place."""
        if self._datatype == "BYTES":
            raise TritonModelException("TYPE_BYTES tensors cannot be converted to DLPack.")
        return dlpack.export(self._array, self._datatype)

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """A tensor that looks at ``tensor``, a DLPack capsule or an object that can make one, in place."""
        if not name:
            raise TritonModelException("Tensor name cannot be an empty string.")
        array, datatype = dlpack.look(tensor)
        return made(name, array, datatype)

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def made(name: str, array: Any, datatype: str) -> Tensor:
    """A tensor whose array is known to be right."""
    tensor = Tensor.__new__(Tensor)
    tensor._name = name
    tensor._array = array
    tensor._datatype = datatype
    return tensor


def _fitting(name: str, array: Any) -> tuple[str, Any]:
    if array.dtype.kind in "iufb" and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    datatype = datatype_of(array.dtype)
    if datatype is None and array.dtype.name == "bfloat16":
        return "BF16", array.view(np.uint16)
    if datatype is None:
        raise TritonModelException(
            f"NumPy dtype is not supported. Tensor '{name}' is {array.dtype}, which Triton has no datatype for."
        )
    if array.dtype.kind in "UT":
        array = np.array([text.encode() for text in array.reshape(-1).tolist()], object).reshape(array.shape)
    return datatype, array
