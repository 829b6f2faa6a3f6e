"""Writes protobuf messages: each function encodes one field, a message is its fields joined.

ONNX's generated classes would need the ``onnx`` package (0.15 s to import); a forest needs these few
kinds of fields, most of them arrays, which numpy encodes faster than any loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_VARINT, _LENGTH = 0, 2


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def integer(field: int, value: int) -> bytes:
    """A non-negative int or an enum."""
    return _varint(field << 3 | _VARINT) + _varint(value)


def block(field: int, content: bytes | str) -> bytes:
    """Text, bytes or an embedded message."""
    data = content.encode() if isinstance(content, str) else content
    return _varint(field << 3 | _LENGTH) + _varint(len(data)) + data


def floats(field: int, values: Any) -> bytes:
    """A packed repeated float; what is too large for one becomes infinity."""
    with np.errstate(over="ignore"):
        return block(field, np.asarray(values).astype("<f4").tobytes())


def integers(field: int, values: NDArray[Any]) -> bytes:
    """A packed repeated int of non-negative numbers."""
    numbers = values.astype(np.uint64).reshape(-1, 1)
    groups = max(1, -(-int(numbers.max(initial=0)).bit_length() // 7))
    shifted = numbers >> (np.arange(groups, dtype=np.uint64) * np.uint64(7))
    more = np.zeros(shifted.shape, np.uint8)
    more[:, :-1] = shifted[:, 1:] > 0
    kept = shifted > 0
    kept[:, 0] = True
    encoded = (shifted & np.uint64(0x7F)).astype(np.uint8) | more << 7
    return block(field, encoded[kept].tobytes())
