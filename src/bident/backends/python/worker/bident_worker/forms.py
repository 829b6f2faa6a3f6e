"""Batches of small tensors without JSON: what is alike in all of them is told once, as a *form*.

A FORM message names and describes the columns. From then on a PLAIN message carries a batch of that
form: a header of fixed size (``HEADER``) and the columns' bytes, each padded to 16. It says nothing
else: no request ids, no parameters, no strings, nothing in shared memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Callable

import numpy as np

from .arrays import MAX_RANK, NUMPY, DamagedError

HEADER = struct.Struct("<QIIIqq")
"""Batch, form, requests, rows of each request, and, in answers, when ``execute`` began and ended."""
FIELDS = ("batch", "form", "count", "rows", "start", "end")
SIZE_LIMIT = 48 * 1024
"""Larger batches go the long way: their copies cost more than their headers."""
FORM_LIMIT = 256
"""As many forms as one side may tell the other; models of endless shapes go the long way."""


class Form:
    """What a batch looks like but for its rows."""

    __slots__ = ("columns",)

    def __init__(self, columns: Iterable[Any]) -> None:
        """``columns``: name, datatype and shape of one row, each. Raises DamagedError on what makes no sense."""
        self.columns: list[tuple[str, str, Any, tuple[int, ...], int]] = []
        try:
            for name, word, tail in columns:
                shape = tuple(tail)
                sound = isinstance(name, str) and word != "BYTES" and len(shape) < MAX_RANK
                if not sound or not all(type(dim) is int and 0 < dim <= SIZE_LIMIT for dim in shape):
                    raise DamagedError(f"a form has a column that cannot be: {name!r} {word!r} {tail!r}")
                size = NUMPY[word].itemsize
                for dim in shape:
                    size *= dim
                self.columns.append((name, word, NUMPY[word], shape, size))
        except (TypeError, ValueError, KeyError) as error:
            raise DamagedError(f"a form makes no sense: {error!r}") from error

    def read(self, payload: Any, rows: int) -> list[Any]:
        """The columns that ``payload`` holds, each an array of ``rows`` rows. Raises DamagedError."""
        arrays = []
        offset = 0
        for _, _, dtype, shape, size in self.columns:
            end = offset + size * rows
            if end > len(payload):
                raise DamagedError("a batch is shorter than its form")
            arrays.append(np.ndarray((rows, *shape), dtype, payload, offset))
            offset = end + -end % 16
        return arrays


class Forms:
    """The forms that one side has told the other."""

    def __init__(self, tell: Callable[[int, Any], None]) -> None:
        """``tell`` lets the other side know of a form: its number, and ``columns`` as ``Form`` takes them."""
        self._tell = tell
        self._numbers: dict[Any, int | None] = {}

    def number(self, key: Any) -> int | None:
        """The form for columns of ``key``: name, datatype and shape of a row of each. None: they go the long way."""
        try:
            return self._numbers[key]
        except KeyError:
            return self._add(key)

    def _add(self, key: Any) -> int | None:
        number = len(self._numbers)
        if number >= FORM_LIMIT:
            return None
        try:
            Form(key)
        except DamagedError:
            self._numbers[key] = None
            return None
        self._numbers[key] = number
        self._tell(number, key)
        return number


def payload_of(columns: Iterable[Sequence[Any]]) -> tuple[list[bytes], int] | None:
    """The bytes of ``columns``, each a sequence of arrays to be laid one behind another; None if they are too many."""
    parts: list[bytes] = []
    size = 0
    for arrays in columns:
        if len(arrays) == 1:
            data = arrays[0].tobytes()
        elif len(arrays) * arrays[0].nbytes > SIZE_LIMIT:
            return None
        else:
            data = np.concatenate(arrays).tobytes()
        size += len(data)
        if size > SIZE_LIMIT:
            return None
        parts.append(data)
        padding = -size % 16
        if padding:
            parts.append(bytes(padding))
            size += padding
    return parts, size
