"""Reads the header of a GGUF file: its metadata and the list of its tensors, never the weights.

The format is the GGUF specification of ggml (versions 2 and 3, little-endian). A vocabulary of 49k
tokens takes milliseconds because its strings are stepped over, not decoded. Every count and length
of the file is bounded before it is believed, and the file is read, not mapped: one that shrinks
meanwhile is an error, not a SIGBUS.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from bident.errors import MalformedError
from bident.text.ggml_types import TENSOR_TYPES

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST_KEYS = 1 << 14
_MOST_TENSORS = 1 << 17
_MOST_DIMENSIONS = 4
_LONGEST_NAME = 1 << 16
_LONGEST_STRING = 1 << 24
_MOST_STRINGS = 1 << 22
"""Of one array: the largest vocabularies have 2^18 tokens and twice as many merges."""
_MOST_NUMBERS = 1 << 26
_MOST_ELEMENTS = 1 << 31
"""Of one tensor along one dimension; it keeps products of four of them from being believed."""
_MOST_KEPT = 1 << 26
"""Bytes of metadata in memory, all keys together."""
_WINDOW = 1 << 20

_BOOL, _STRING, _ARRAY = 7, 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "?", 10: "Q", 11: "q", 12: "d"}
_SIZES = {kind: struct.calcsize(code) for kind, code in _NUMBERS.items()}
_READ_U64 = struct.Struct("<Q").unpack_from


class Tensor(NamedTuple):
    """One entry of the list. ``shape`` has the fastest dimension first, ``offset`` counts from the weights' start."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int

    @property
    def elements(self) -> int:
        count = 1
        for length in self.shape:
            count *= length
        return count

    @property
    def type_name(self) -> str:
        known = TENSOR_TYPES.get(self.type)
        return known.name if known else f"type {self.type}"

    @property
    def size(self) -> int:
        """In bytes; 0 where the format is of a newer llama.cpp."""
        known = TENSOR_TYPES.get(self.type)
        return self.elements // known.block * known.size if known else 0


@dataclass(frozen=True)
class Array:
    """An array of the metadata; ``values`` is None where it is longer than what was asked to be kept."""

    count: int
    values: tuple[Any, ...] | None


@dataclass(frozen=True)
class Header:
    """What precedes the weights. ``found`` are the watched strings that an array of that name holds."""

    version: int
    metadata: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    found: Mapping[str, frozenset[bytes]] = field(default_factory=dict)


def read_header(
    path: Path, *, keep: int = 1024, watch: Mapping[str, Collection[bytes]] | None = None, check_size: bool = True
) -> Header:
    """The header of the file at ``path``. Blocks for a few milliseconds.

    ``keep`` is how many elements of an array are decoded, ``watch`` names arrays of strings in which to
    look for some. Raises MalformedError with the reason when it is no GGUF file that can be used, also
    (with ``check_size``) when it ends before its weights do, and OSError when it cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            return _Reader(file, size, keep, watch or {}, check_size).header()
        except _Fault as fault:
            raise MalformedError(f"{path.name} is not a usable GGUF file: {fault}") from None


class _Fault(Exception):  # noqa: N818 - it becomes the reason of a MalformedError
    """What is wrong with the file, in words."""


class _Reader:
    """A window over the file that moves forward; what it holds is at most the longest string."""

    def __init__(
        self, file: BinaryIO, size: int, keep: int, watch: Mapping[str, Collection[bytes]], check_size: bool
    ) -> None:
        self._file, self._size, self._keep, self._watch, self._check_size = file, size, keep, watch, check_size
        self._window = b""
        self._at = 0
        self._start = 0
        """Where the window begins in the file."""
        self._found: dict[str, frozenset[bytes]] = {}
        self._kept = 0

    def header(self) -> Header:
        version = self._begin()
        tensor_count, key_count = self._u64(), self._u64()
        if key_count > _MOST_KEYS:
            raise _Fault(f"it declares {key_count} metadata keys, {_MOST_KEYS} are the most")
        if tensor_count > _MOST_TENSORS:
            raise _Fault(f"it declares {tensor_count} tensors, {_MOST_TENSORS} are the most")
        metadata: dict[str, Any] = {}
        for _ in range(key_count):
            name = self._string(_LONGEST_NAME, "a metadata key")
            if name in metadata:
                raise _Fault(f"its metadata has '{name}' twice")
            metadata[name] = self._value(self._number(4), name)
        tensors = tuple(self._tensor() for _ in range(tensor_count))
        if self._check_size:
            self._check_weights(metadata, tensors)
        return Header(version, metadata, tensors, self._found)

    def _begin(self) -> int:
        if self._size == 0:
            raise _Fault("it is empty")
        magic = self._take(4)
        if magic != MAGIC:
            raise _Fault(f"it starts with {magic!r}, not with {MAGIC!r}")
        version = int(self._number(4))
        if version in _VERSIONS:
            return version
        if int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS:
            raise _Fault("it is big-endian: convert it with gguf-py's gguf-convert-endian")
        raise _Fault(f"it is of version {version}, versions 2 and 3 can be read")

    def _value(self, kind: int, name: str) -> Any:
        if kind in _NUMBERS:
            return self._number(kind)
        if kind == _STRING:
            return self._string(_LONGEST_STRING, f"'{name}'")
        if kind == _ARRAY:
            return self._array(name)
        raise _Fault(f"'{name}' has the unknown type {kind}")

    def _array(self, name: str) -> Array:
        kind, count = self._number(4), self._u64()
        if kind == _STRING:
            if count > _MOST_STRINGS:
                raise _Fault(f"'{name}' has {count} strings, {_MOST_STRINGS} are the most")
            return Array(count, self._strings(name, count))
        if kind not in _NUMBERS:
            what = "arrays, which llama.cpp does not read" if kind == _ARRAY else f"the unknown type {kind}"
            raise _Fault(f"'{name}' is an array of {what}")
        if count > _MOST_NUMBERS:
            raise _Fault(f"'{name}' has {count} numbers, {_MOST_NUMBERS} are the most")
        size = _SIZES[kind] * count
        if count > self._keep:
            self._skip(size, name)
            return Array(count, None)
        self._keep_bytes(8 * count)
        code = "B" if kind == _BOOL else _NUMBERS[kind]
        values = struct.unpack(f"<{count}{code}", self._take(size))
        return Array(count, tuple(map(bool, values)) if kind == _BOOL else values)

    def _strings(self, name: str, count: int) -> tuple[str, ...] | None:
        if count <= self._keep:
            kept = [self._raw_string(_LONGEST_STRING, f"a string of '{name}'") for _ in range(count)]
            self._found[name] = frozenset(kept) & frozenset(self._watch.get(name, ()))
            return tuple(text.decode("utf-8", "replace") for text in kept)
        watched = frozenset(self._watch.get(name, ()))
        self._found[name] = self._step_over(name, count, watched)
        return None

    def _step_over(self, name: str, count: int, watched: frozenset[bytes]) -> frozenset[bytes]:
        """Step over ``count`` strings: the one loop that runs once for each token of a vocabulary."""
        found = set()
        lengths = frozenset(map(len, watched))
        window, at, end = self._window, self._at, len(self._window)
        for _ in range(count):
            if at + 8 > end:
                self._at = at
                self._fill(8)
                window, at, end = self._window, self._at, len(self._window)
            length = _READ_U64(window, at)[0]
            at += 8
            if at + length > end:
                self._at = at
                if length > _LONGEST_STRING:
                    raise _too_long(f"a string of '{name}'", length, _LONGEST_STRING)
                self._fill(length)
                window, at, end = self._window, self._at, len(self._window)
            if length in lengths and (text := window[at : at + length]) in watched:
                found.add(text)
            at += length
        self._at = at
        return frozenset(found)

    def _tensor(self) -> Tensor:
        name = self._string(_LONGEST_NAME, "the name of a tensor")
        dimensions = int(self._number(4))
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise _Fault(f"tensor '{name}' has {dimensions} dimensions, 1 to {_MOST_DIMENSIONS} can be read")
        shape = tuple(self._u64() for _ in range(dimensions))
        if any(not 1 <= length <= _MOST_ELEMENTS for length in shape):
            raise _Fault(f"tensor '{name}' has the shape {list(shape)}")
        return Tensor(name, shape, int(self._number(4)), self._u64())

    def _check_weights(self, metadata: Mapping[str, Any], tensors: tuple[Tensor, ...]) -> None:
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
            raise _Fault(f"its general.alignment is {alignment!r}, not a power of two")
        start = -(-(self._start + self._at) // alignment) * alignment
        for tensor in tensors:
            end = start + tensor.offset + tensor.size
            if end > self._size:
                raise _Fault(
                    f"it is cut off: its tensor '{tensor.name}' ends at byte {end} and the file at {self._size}; "
                    "fetch it again"
                )

    def _u64(self) -> int:
        return int(self._number(10))

    def _number(self, kind: int) -> Any:
        (value,) = struct.unpack("<" + _NUMBERS[kind], self._take(_SIZES[kind]))
        return value

    def _string(self, longest: int, what: str) -> str:
        return self._raw_string(longest, what).decode("utf-8", "replace")

    def _raw_string(self, longest: int, what: str) -> bytes:
        length = self._u64()
        if length > longest:
            raise _too_long(what, length, longest)
        self._keep_bytes(length)
        return self._take(length)

    def _keep_bytes(self, count: int) -> None:
        self._kept += count
        if self._kept > _MOST_KEPT:
            raise _Fault(f"its metadata has more than {_MOST_KEPT} bytes")

    def _take(self, count: int) -> bytes:
        if self._at + count > len(self._window):
            self._fill(count)
        taken = self._window[self._at : self._at + count]
        self._at += count
        return taken

    def _skip(self, count: int, name: str) -> None:
        within = min(count, len(self._window) - self._at)
        self._at += within
        if count > within:
            position = self._start + len(self._window) + count - within
            if position > self._size:
                raise _Fault(f"it ends inside '{name}'")
            self._file.seek(position)
            self._window, self._at, self._start = b"", 0, position

    def _fill(self, count: int) -> None:
        """Move the window so that ``count`` bytes follow."""
        rest = self._window[self._at :]
        self._start += self._at
        self._window = rest + self._file.read(max(_WINDOW, count - len(rest)))
        self._at = 0
        if len(self._window) < count:
            raise _Fault(f"it ends inside its header, at byte {self._start + len(self._window)}; fetch it again")


def _too_long(what: str, length: int, longest: int) -> _Fault:
    return _Fault(f"{what} is {length} bytes long, {longest} are the most")
