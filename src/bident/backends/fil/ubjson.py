"""Reads UBJSON, the binary JSON that XGBoost saves by default, into dicts, lists and numpy arrays.

Only what XGBoost's writer (and nlohmann::json's, its peer) can produce; anything else is an error,
and so is a length that the data cannot hold: nothing is allocated on the word of a corrupt file.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from bident.errors import ConfigError

_NUMBERS = {b"i": ">i1", b"U": ">u1", b"I": ">i2", b"l": ">i4", b"L": ">i8", b"d": ">f4", b"D": ">f8"}
_CONSTANTS = {b"T": True, b"F": False, b"Z": None}
_DEPTH = 32


def loads(data: bytes) -> Any:
    """Decode one value. Arrays of one number type become numpy arrays. Raises ConfigError."""
    reader = _Reader(data)
    return reader.value(reader.take(1), 0)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _fail(self, what: str) -> ConfigError:
        return ConfigError(f"{what} at byte {self._at} of {len(self._data)}")

    def take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise self._fail("the file ends in the middle of a value")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def value(self, marker: bytes, depth: int) -> Any:
        if depth > _DEPTH:
            raise self._fail("too deeply nested")
        if marker in _NUMBERS:
            return self._numbers(marker, 1)[0].item()
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker in (b"S", b"H"):
            return self._text()
        if marker == b"C":
            return self.take(1).decode("latin-1")
        if marker == b"[":
            return self._list(depth)
        if marker == b"{":
            return self._dict(depth)
        raise self._fail(f"{marker!r} is not a UBJSON type")

    def _numbers(self, marker: bytes, count: int) -> Any:
        dtype = np.dtype(_NUMBERS[marker])
        array = np.frombuffer(self.take(count * dtype.itemsize), dtype)
        return array.astype(dtype.newbyteorder("="))

    def _length(self) -> int:
        marker = self.take(1)
        if marker not in _NUMBERS or marker in b"dD":
            raise self._fail(f"{marker!r} is not the type of a length")
        return int(self._numbers(marker, 1)[0])

    def _text(self) -> str:
        # Most texts are keys, whose length is one int64: no numpy for those.
        if self._data[self._at : self._at + 1] == b"L" and self._at + 9 <= len(self._data):
            (length,) = struct.unpack_from(">q", self._data, self._at + 1)
            self._at += 9
        else:
            length = self._length()
        return self.take(length).decode("utf-8", "surrogateescape")

    def _container(self) -> tuple[bytes | None, int | None]:
        """The optional element type and count that may follow the opening bracket."""
        kind = count = None
        if self._peek() == b"$":
            self.take(1)
            kind = self.take(1)
        if self._peek() == b"#":
            self.take(1)
            count = self._length()
        if count is not None and not 0 <= count <= len(self._data):
            raise self._fail(f"a container of {count} elements does not fit the file")
        if kind is not None and (count is None or kind in _CONSTANTS):
            raise self._fail("a typed container without a count or without content")
        return kind, count

    def _peek(self) -> bytes:
        return self._data[self._at : self._at + 1]

    def _ends(self, bracket: bytes, count: int | None, done: int) -> bool:
        if count is not None:
            return done == count
        if self._peek() == bracket:
            self.take(1)
            return True
        return False

    def _list(self, depth: int) -> Any:
        kind, count = self._container()
        if kind in _NUMBERS and count is not None:
            return self._numbers(kind, count)
        items: list[Any] = []
        while not self._ends(b"]", count, len(items)):
            items.append(self.value(kind or self.take(1), depth + 1))
        return items

    def _dict(self, depth: int) -> dict[str, Any]:
        kind, count = self._container()
        members: dict[str, Any] = {}
        read = 0
        while not self._ends(b"}", count, read):
            key = self._text()
            members[key] = self.value(kind or self.take(1), depth + 1)
            read += 1
        return members
