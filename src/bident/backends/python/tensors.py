"""Arrays of the server in the worker's words, and back."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from bident.backends.python.worker.bident_worker.arrays import DATATYPE, DamagedError, datatype_of, unpack
from bident.backends.python.worker.bident_worker.frames import Frame

_BF16 = np.dtype(ml_dtypes.bfloat16)


def worded(name: str, array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """The datatype of ``array``, and the array in the form in which it travels. Raises TypeError if it has none."""
    word = DATATYPE.get(array.dtype)
    if word is not None:
        return word, array
    if array.dtype == _BF16:
        return "BF16", array.view(np.uint16)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    word = datatype_of(array.dtype)
    if word is None:
        raise TypeError(f"tensor '{name}' is {array.dtype}, which no datatype stands for")
    return word, array


def received(description: Any, frame: Frame) -> tuple[str, NDArray[Any]]:
    """The name and the array of one description in a message of the worker. Raises DamagedError."""
    array: NDArray[Any] = unpack(description, frame.payload, frame.block)
    name, word = description[0], description[1]
    if not isinstance(name, str):
        raise DamagedError("an array has no name")
    return name, as_numpy(word, array)


def as_numpy(word: str, array: NDArray[Any]) -> NDArray[Any]:
    """An array that a worker sent as datatype ``word``, in the server's form."""
    if word == "BF16":
        bits: NDArray[Any] = array.view(_BF16)
        return bits
    if word == "BOOL":
        # Any byte but 0 is true; numpy must never see a bool that is neither 0 nor 1.
        truths: NDArray[Any] = array.view(np.uint8) != 0
        return truths
    return array
