"""DLPack, by hand: numpy's own support knows neither BF16 nor capsules."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .errors import TritonModelException

_CPU = 1
_CODES = {"INT": 0, "UINT": 1, "FP": 2, "BF": 4, "BOOL": 6}
_WORDS = {0: "INT", 1: "UINT", 2: "FP", 4: "BF", 6: "BOOL"}


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

_api = ctypes.pythonapi
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_pointer = _api.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_rename = _api.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_is_valid = _api.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
# The same two for a capsule that is being destroyed, which must not be touched as an object.
_raw_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_raw_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))

_exported: dict[int, tuple[Any, ...]] = {}
"""What capsules look at, by the address of the structure that they hold, until they are done."""


def _forget_managed(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


def _forget_capsule(capsule: int) -> None:
    # A capsule that somebody has taken over bears another name by now.
    if _raw_is_valid(capsule, b"dltensor"):
        _exported.pop(_raw_pointer(capsule, b"dltensor"), None)


_forget = _Deleter(_forget_managed)
_capsule_dies = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_forget_capsule)


def export(array: Any, datatype: str) -> Any:
    """A capsule that looks at ``array``, which is C-contiguous, as a ``datatype``."""
    family = datatype.rstrip("0123456789")
    managed = _Managed()
    shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    tensor = managed.tensor
    tensor.data = array.ctypes.data
    tensor.device = _Device(_CPU, 0)
    tensor.rank = array.ndim
    tensor.dtype = _DataType(_CODES[family], array.dtype.itemsize * 8, 1)
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _forget
    address = ctypes.addressof(managed)
    _exported[address] = (managed, shape, array)
    return _new(address, b"dltensor", ctypes.cast(_capsule_dies, ctypes.c_void_p))


class _Owner:
    """Keeps what a capsule looks at alive as long as an array does."""

    def __init__(self, managed: Any, interface: dict[str, Any]) -> None:
        self._managed = managed
        self.__array_interface__ = interface

    def __del__(self) -> None:
        if self._managed.contents.deleter:
            self._managed.contents.deleter(self._managed)


def look(source: Any) -> tuple[Any, str]:
    """The array that ``source`` holds, in place, and its datatype."""
    capsule = _capsule_of(source)
    managed = ctypes.cast(_pointer(capsule, b"dltensor"), ctypes.POINTER(_Managed))
    tensor = managed.contents.tensor
    shape = tuple(tensor.shape[axis] for axis in range(tensor.rank))
    datatype = f"{_WORDS.get(tensor.dtype.code, '?')}{tensor.dtype.bits}"
    datatype = "BOOL" if datatype == "BOOL8" else datatype
    kind = {"BF": "u", "INT": "i", "UINT": "u", "FP": "f", "BOOL": "b"}.get(datatype.rstrip("0123456789"))
    if tensor.device.kind != _CPU:
        raise TritonModelException(f"The tensor is on a device of DLPack kind {tensor.device.kind}; there is only CPU.")
    if kind is None or tensor.dtype.lanes != 1 or tensor.dtype.bits not in (8, 16, 32, 64):
        raise TritonModelException(f"DLPack datatype {datatype} is not supported.")
    if not _contiguous(tensor, shape):
        raise TritonModelException(
            "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are supported."
        )
    interface = {
        "version": 3,
        "shape": shape,
        "typestr": f"{'|' if kind == 'b' else '<'}{kind}{tensor.dtype.bits // 8}",
        "data": ((tensor.data or 0) + tensor.offset, False),
    }
    _rename(capsule, b"used_dltensor")
    owner = _Owner(managed, interface)
    return np.asarray(owner), datatype


def _capsule_of(source: Any) -> Any:
    if type(source).__name__ == "PyCapsule":
        capsule = source
    elif hasattr(source, "__dlpack__") and hasattr(source, "__dlpack_device__"):
        if isinstance(source, np.ndarray) and source.dtype.kind in "OSU":
            raise TritonModelException("DLPack does not have support for string tensors.")
        capsule = source.__dlpack__()
    else:
        raise TritonModelException(
            "Provided tensor is not supported. Tensor must be a DLPack capsule         or have `__dlpack__` and "
            "`__dlpack_device__` attributes"
        )
    if not _is_valid(capsule, b"dltensor"):
        raise TritonModelException("The DLPack capsule has been used already; each can be taken over once.")
    return capsule


def _contiguous(tensor: Any, shape: tuple[int, ...]) -> bool:
    if not tensor.strides:
        return True
    expected = 1
    for axis in reversed(range(tensor.rank)):
        if shape[axis] != 1 and tensor.strides[axis] != expected:
            return False
        expected *= shape[axis]
    return True
