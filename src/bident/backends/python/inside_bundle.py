"""Arrays that a model hands to the server it runs in: by reference where nobody else can change them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from bident.backends.python.tensors import as_numpy
from bident.backends.python.worker.bident_worker.arrays import strings

LARGE = 64 * 1024
"""From so many bytes on it is worth finding out whether an array needs to be copied."""


class Bundle:
    """The arrays of one message, in place of a worker's Parcel. An array is described by name, datatype and itself.

    A model may write into an array after it has handed it over, as it may with a worker. So each is
    copied, unless it has been joined of several, or is held by nobody else.
    """

    __slots__ = ("_single", "is_large")

    def __init__(self) -> None:
        self._single: list[tuple[list[Any], Sequence[Any]]] = []
        self.is_large = False
        """Whether there is an array whose copy may be worth sparing."""

    def add(self, name: str, datatype: str, arrays: Sequence[Any], shape: Sequence[int]) -> list[Any]:
        """Take ``arrays``, joined along their first axis; returns the description, which ``settle`` completes."""
        if datatype == "BYTES":
            return [name, datatype, _joined_strings(arrays)]
        if len(arrays) > 1:
            return [name, datatype, as_numpy(datatype, np.concatenate(arrays))]
        description = [name, datatype, None]
        self._single.append((description, arrays))
        self.is_large = self.is_large or arrays[0].nbytes >= LARGE
        return description

    def settle(self) -> None:
        """Make sure that every array stays as it is now."""
        for description, arrays in self._single:
            kept = arrays[0].nbytes >= LARGE and _holders(arrays) in _NOBODY_ELSE
            description[2] = as_numpy(description[1], arrays[0] if kept else np.array(arrays[0]))


def _joined_strings(arrays: Sequence[Any]) -> Any:
    items = strings(arrays)
    joined = np.empty(len(items), object)
    joined[:] = items
    first = arrays[0]
    return joined.reshape((sum(len(array) for array in arrays), *first.shape[1:]) if first.shape else ())


def _holders(arrays: Sequence[Any]) -> tuple[int, int]:
    """How many references there are to the array in ``arrays``, and to the one that it looks at."""
    array = arrays[0]
    if type(array) is not np.ndarray:
        return sys.maxsize, 0
    base = array.base
    if base is None:
        return sys.getrefcount(array), 0
    if type(base) is np.ndarray and base.base is None:
        return sys.getrefcount(array), sys.getrefcount(base)
    return sys.maxsize, 0


# How that looks when nobody but ``arrays`` has the array: found out rather than known, for it is the interpreter's.
_NOBODY_ELSE = {_holders([np.empty(1)]), _holders([np.empty(2)[1:]])}
