"""Tensor bytes: how the elements of a tensor lie in a request's or answer's binary part.

Fixed-size datatypes are row-major and little-endian. A BYTES element is a little-endian uint32
length followed by that many bytes (Triton's *binary tensor data* extension).
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.errors import invalid_arg
from bident.wire.datatypes import BOOL, BYTES, DataType
from bident.wire.shown import shown

_LENGTH = struct.Struct("<I")


def pack(array: NDArray[Any], datatype: DataType) -> bytes | memoryview:
    """The binary form of ``array``; a view on it wherever it already lies right in memory."""
    if datatype is BYTES:
        return _pack_bytes(array)
    if array.dtype != datatype.numpy:
        array = array.astype(datatype.numpy)
    contiguous = np.ascontiguousarray(array)
    if contiguous.size == 0:
        return b""
    return contiguous.reshape(-1).view(np.uint8).data


def unpack(name: str, datatype: DataType, shape: tuple[int, ...], count: int, raw: bytes | memoryview) -> NDArray[Any]:
    """The tensor that ``raw`` holds, of ``shape`` (``count`` elements), as a view where possible.

    Raises INVALID_ARG naming the input ``name`` when ``raw`` is not exactly that tensor.
    """
    check_size(name, datatype, shape, count, len(raw))
    if datatype is BYTES:
        return _unpack_bytes(name, count, raw).reshape(shape)
    if datatype is BOOL:
        # Any byte but 0 is true; numpy must never see a bool that is neither 0 nor 1.
        truth: NDArray[Any] = np.frombuffer(raw, np.uint8) != 0
        return truth.reshape(shape)
    elements: NDArray[Any] = np.frombuffer(raw, datatype.numpy)
    return elements.reshape(shape)


def check_size(name: str, datatype: DataType, shape: tuple[int, ...], count: int, size: int) -> None:
    """Raise INVALID_ARG naming the input ``name`` if ``size`` bytes cannot be a tensor of ``shape``."""
    if datatype is BYTES:
        # Each element takes at least its four length bytes, so a lying count cannot make us allocate.
        if count * _LENGTH.size > size:
            raise invalid_arg(
                f"expected {count} string elements for inference input {shown(name)}, but its {size} bytes "
                f"cannot hold that many (each starts with a 4-byte little-endian length)"
            )
    elif size != count * datatype.size:
        raise invalid_arg(
            f"input byte size mismatch for input {shown(name)}. Expected {count * datatype.size}, got {size}: "
            f"shape {list(shape)} of {datatype.name} takes {datatype.size} bytes an element"
        )


def _pack_bytes(array: NDArray[Any]) -> bytes:
    parts: list[bytes] = []
    for element in array.reshape(-1).tolist():
        item = element if isinstance(element, bytes) else str(element).encode()
        parts.append(_LENGTH.pack(len(item)))
        parts.append(item)
    return b"".join(parts)


def _unpack_bytes(name: str, count: int, raw: bytes | memoryview) -> NDArray[Any]:
    data = bytes(raw)
    size = len(data)
    elements = np.empty(count, dtype=object)
    at = 0
    for index in range(count):
        start = at + _LENGTH.size
        if start > size:
            raise invalid_arg(
                f"incomplete string length indicator for inference input {shown(name)}, expecting {_LENGTH.size} bytes "
                f"but only {size - at} bytes available: element {index} of {count} starts at byte {at}, and the data "
                f"ends at byte {size}"
            )
        (length,) = _LENGTH.unpack_from(data, at)
        at = start + length
        if at > size:
            raise invalid_arg(
                f"incomplete string data for inference input {shown(name)}, expecting string of length {length} but "
                f"only {size - start} bytes available: element {index} declares {length} bytes, {size - start} are "
                f"left (the length is a little-endian uint32 that counts bytes)"
            )
        elements[index] = data[start:at]
    left = size - at
    if 0 < left < _LENGTH.size:
        raise invalid_arg(
            f"incomplete string length indicator for inference input {shown(name)}, expecting {_LENGTH.size} bytes but "
            f"only {left} bytes available: they are left after its {count} elements"
        )
    if left:
        raise invalid_arg(
            f"unexpected number of string elements {count + 1} for inference input {shown(name)}, expecting {count}: "
            f"{left} bytes are left after them"
        )
    return elements
