"""Datatypes, and how arrays lie in a message.

An array is described by ``[name, datatype, shape, place, offset, size]``: ``place`` says whether its
``size`` bytes begin at ``offset`` of the message's payload or of the message's shared block. Fixed-size
datatypes are row-major and little-endian. Strings are their uint32 lengths, then their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

INLINE, SHARED = 0, 1
MAX_RANK = 32
_MAX_ELEMENTS = 1 << 40

NUMPY = {
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
    "BF16": np.dtype("<u2"),
    "BYTES": np.dtype(object),
}
"""Wire name -> numpy's datatype. numpy has no BF16: its bits are carried as uint16."""

DATATYPE = {dtype: word for word, dtype in NUMPY.items() if word != "BF16"}
"""numpy's datatype -> wire name. The server adds its own type for BF16."""

_LENGTH = np.dtype("<u4")


class DamagedError(ValueError):
    """A message that does not describe what it claims to."""


def datatype_of(dtype: Any) -> str | None:
    """The wire name for numpy's ``dtype``; None if there is none."""
    word = DATATYPE.get(dtype)
    if word is None and dtype.kind in "SUT":
        return "BYTES"
    return word


def pack_strings(arrays: Sequence[Any]) -> bytes:
    """The bytes that all the strings in ``arrays``, one after another, travel as."""
    items = strings(arrays)
    try:
        lengths = np.fromiter(map(len, items), _LENGTH, len(items))
    except OverflowError:
        raise ValueError("a string of 4 GiB or more cannot be carried") from None
    return b"".join([lengths.tobytes(), *items])


def strings(arrays: Sequence[Any]) -> list[bytes]:
    """All the strings in ``arrays``, one after another."""
    items: list[bytes] = []
    for array in arrays:
        for item in array.reshape(-1).tolist():
            items.append(item if type(item) is bytes else _encoded(item))
    return items


def _encoded(item: Any) -> bytes:
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    return str(item).encode("utf-8", "surrogateescape")


def unpack_strings(raw: bytes, count: int) -> Any:
    """The flat object array of ``count`` strings that ``raw`` holds. Raises DamagedError."""
    head = count * 4
    if head > len(raw):
        raise DamagedError(f"{len(raw)} bytes cannot hold {count} strings")
    ends = np.cumsum(np.frombuffer(raw, _LENGTH, count), dtype=np.uint64).tolist()
    if head + (ends[-1] if count else 0) != len(raw):
        raise DamagedError(f"{count} strings do not fill {len(raw)} bytes")
    strings = np.empty(count, dtype=object)
    start = head
    for index in range(count):
        end = head + ends[index]
        strings[index] = raw[start:end]
        start = end
    return strings


class Parcel:
    """The arrays of one message on their way out: small ones inside the message, large ones in shared memory."""

    inline_each = 16 * 1024
    inline_all = 48 * 1024

    def __init__(self) -> None:
        self.payload: list[Any] = []
        self.payload_size = 0
        self.shared_size = 0
        self._shared: list[tuple[int, Any, tuple[int, ...], Sequence[Any]]] = []

    def add(self, name: str, datatype: str, arrays: Sequence[Any], shape: Sequence[int]) -> list[Any]:
        """Put ``arrays``, joined along their first axis into ``shape``, on board; returns their description."""
        dtype = NUMPY[datatype]
        lies: tuple[int, ...]
        if datatype == "BYTES":
            raw = pack_strings(arrays)
            size = len(raw)
            arrays = [np.ndarray((size,), np.uint8, raw)]
            dtype, lies = arrays[0].dtype, (size,)
        else:
            lies = tuple(shape)
            size = dtype.itemsize
            for dim in lies:
                size *= dim
        if size <= self.inline_each and self.payload_size + size <= self.inline_all:
            offset = self.payload_size
            padding = -size % 16
            if len(arrays) == 1:
                self.payload.append(arrays[0].tobytes() if size else b"")
            else:
                self.payload.append(np.concatenate(arrays).tobytes())
            if padding:
                self.payload.append(bytes(padding))
            self.payload_size = offset + size + padding
            return [name, datatype, shape, INLINE, offset, size]
        offset = self.shared_size
        self._shared.append((offset, dtype, lies, arrays))
        self.shared_size = offset + size + -size % 64
        return [name, datatype, shape, SHARED, offset, size]

    def write(self, block: Any) -> None:
        """Copy the large arrays into ``block``, a byte array of ``shared_size``."""
        for offset, dtype, shape, arrays in self._shared:
            place = np.ndarray(shape, dtype, block, offset)
            if len(arrays) == 1:
                np.copyto(place, arrays[0].reshape(shape))
            else:
                np.concatenate(arrays, out=place)


def unpack(description: Any, payload: Any, block: Any) -> Any:
    """The array that ``description`` describes, a view wherever it can be. Raises DamagedError."""
    try:
        name, datatype, shape, place, offset, size = description
        dtype = NUMPY[datatype]
        count = _count(name, shape)
        source = payload if place == INLINE else block
        if type(offset) is not int or type(size) is not int or not 0 <= offset <= offset + size <= len(source):
            raise DamagedError(f"array '{name}' lies outside of its message")
        if datatype == "BYTES":
            return unpack_strings(bytes(memoryview(source)[offset : offset + size]), count).reshape(shape)
        if size != count * dtype.itemsize:
            raise DamagedError(f"array '{name}' of shape {shape} cannot take {size} bytes")
        return np.ndarray(shape, dtype, source, offset) if size else np.empty(shape, dtype)
    except DamagedError:
        raise
    except (TypeError, ValueError, KeyError) as error:
        raise DamagedError(f"an array's description makes no sense: {error!r}") from error


def _count(name: str, shape: Any) -> int:
    count = 1
    for dim in shape:
        if type(dim) is not int or dim < 0:
            raise DamagedError(f"array '{name}' has the shape {shape}")
        count *= dim
    if len(shape) > MAX_RANK or count > _MAX_ELEMENTS:
        raise DamagedError(f"array '{name}' has the shape {shape}")
    return count
