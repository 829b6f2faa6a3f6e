"""The classification extension: the best entries of an output, as ``value:index[:label]`` strings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.errors import invalid_arg
from bident.wire.datatypes import BYTES
from bident.wire.infer import InferOutput

MAX_ELEMENTS = 1_000_000
_UNSUPPORTED = ("BYTES", "BOOL", "FP16", "BF16")


def classify(output: InferOutput, classes: int, labels: list[str] | None, *, batched: bool) -> InferOutput:
    """The ``classes`` largest entries of each item of ``output``, best first, as a BYTES tensor.

    The shape is [classes], or [batch, classes] when the model is ``batched``; ``classes`` beyond the
    item's size are cut. Values are written as C's ``%f`` and ``%d`` do, as Triton does. Raises
    INVALID_ARG for datatypes that have no order here, and for very large outputs.
    """
    if output.datatype.name in _UNSUPPORTED:
        raise invalid_arg(
            f"class result not available for output due to unsupported type '{output.datatype.name}'; ask for output "
            f"'{output.name}' without it"
        )
    array = output.array
    if array.size > MAX_ELEMENTS:
        raise invalid_arg(
            f"classification output tensor too large: '{output.name}' has {array.size} elements, at most {MAX_ELEMENTS}"
        )
    rows = array.shape[0] if batched else 1
    items = array.reshape(rows, array.size // rows)
    best = [_best(item, min(classes, items.shape[1]), labels or []) for item in items]
    result = np.array(best, dtype=object).reshape((len(best), min(classes, items.shape[1])))
    return InferOutput(output.name, BYTES, result if batched else result[0])


def _best(item: NDArray[Any], classes: int, labels: list[str]) -> list[bytes]:
    """Largest first; among equals the lower index first; NaN last."""
    if item.dtype.kind == "f":
        order = np.argsort(-item, kind="stable")  # numpy puts NaN last
    else:
        # Integers may have no negative; a stable ascending sort read backwards from reversed items serves them.
        order = (len(item) - 1 - np.argsort(item[::-1], kind="stable"))[::-1]
    entries: list[bytes] = []
    for index in order[:classes].tolist():
        value = item[index]
        text = f"{value:f}" if item.dtype.kind == "f" else str(int(value))
        label = f":{labels[index]}" if index < len(labels) and labels[index] else ""
        entries.append(f"{text}:{index}{label}".encode())
    return entries
