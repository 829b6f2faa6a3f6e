"""Makes values from a file into exactly the tensor that an input declares, or says why they cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.cli.card import TensorCard
from bident.errors import ServeError, invalid_arg
from bident.wire.datatypes import BOOL, BYTES, DATATYPES, DataType


def fit(card: TensorCard, values: Any) -> NDArray[Any]:
    """``values`` (an array or nested lists) in ``card``'s datatype and shape.

    One row may leave out a batch dimension of any size, or bring one of 1 that is not there; a single
    value is an input of one element, and a list of them are rows of one element each. Numbers may change
    their type, never their value (but for the rounding to a smaller float).
    """
    array = _array(card, values)
    return _shaped(card, _typed(card, array, datatype_of(card)))


def datatype_of(card: TensorCard) -> DataType:
    """The datatype of ``card``. Raises INVALID_ARG for one this client does not know."""
    try:
        return DATATYPES[card.datatype]
    except KeyError:
        raise invalid_arg(f"input '{card.name}' has datatype {card.datatype}, which this client cannot send") from None


def _array(card: TensorCard, values: Any) -> NDArray[Any]:
    if isinstance(values, np.ndarray):
        return values
    try:
        return np.array(values, dtype=object if card.datatype == "BYTES" else None)
    except ValueError:
        raise invalid_arg(f"input '{card.name}': its rows differ in length; {card} needs them all alike") from None


def _typed(card: TensorCard, array: NDArray[Any], datatype: DataType) -> NDArray[Any]:
    if datatype is BYTES:
        return _texts(card, array)
    if array.dtype.kind not in "biuf":
        raise _refusal(card, f"holds {array.dtype.name if array.dtype.kind != 'U' else 'text'}, not numbers")
    target = datatype.numpy
    if datatype is BOOL or target.kind in "iu":
        _check_whole(card, array, target)
    return array.astype(target)


def _texts(card: TensorCard, array: NDArray[Any]) -> NDArray[Any]:
    texts = np.empty(array.shape, dtype=object)
    for place, value in enumerate(array.reshape(-1).tolist()):
        if not isinstance(value, (str, bytes)):
            raise _refusal(card, f"holds {value!r} where a string belongs")
        texts.reshape(-1)[place] = value if isinstance(value, bytes) else value.encode()
    return texts


def _check_whole(card: TensorCard, array: NDArray[Any], target: np.dtype[Any]) -> None:
    low, high = (0, 1) if target.kind == "b" else (int(np.iinfo(target).min), int(np.iinfo(target).max))
    if array.dtype.kind == "b" or array.size == 0:
        return
    if array.dtype.kind == "f" and not np.array_equal(array, np.rint(array)):
        raise _refusal(card, "holds fractions (or NaN), which it cannot keep")
    if int(array.min()) < low or int(array.max()) > high:
        raise _refusal(card, f"holds values from {array.min()} to {array.max()}; it takes {low} to {high}")


def _shaped(card: TensorCard, array: NDArray[Any]) -> NDArray[Any]:
    wanted = card.shape
    readings = [array]
    if array.ndim == len(wanted) - 1 and wanted[0] in (-1, 1):
        readings.append(array[np.newaxis])
    elif array.ndim == len(wanted) + 1 and array.shape[0] == 1:
        readings.append(array[0])
    if array.ndim == 0:
        readings.append(array.reshape((1,) * len(wanted)))
    elif array.ndim == 1 and len(wanted) > 1:
        # Rows, where nothing but a batch dimension has room for so many.
        readings.append(array.reshape((-1,) + (1,) * (len(wanted) - 1)))
    for reading in readings:
        if _fits(wanted, reading.shape):
            return reading
    raise _refusal(card, f"got shape {list(array.shape)}" if array.ndim else f"got a single value, {array}")


def _fits(wanted: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(want in (-1, got) for want, got in zip(wanted, shape, strict=True))


def _refusal(card: TensorCard, reason: str) -> ServeError:
    return invalid_arg(f"input {card}: {reason}")
