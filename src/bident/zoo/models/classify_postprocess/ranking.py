"""From a classifier's logits to its best classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def best(logits: Array, count: int) -> tuple[Array, Array]:
    """The ``count`` best classes of each row of ``logits`` [rows, classes], best first.

    Returns their numbers, INT32 [rows, count], and their shares of certainty (softmax), FP32 [rows, count].
    """
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    numbers = np.argsort(-shares, axis=1, kind="stable")[:, :count]
    return numbers.astype(np.int32), np.take_along_axis(shares, numbers, axis=1).astype(np.float32)


def wanted(parameters: Mapping[str, Any], default: int, classes: int) -> int:
    """How many classes a request asks for with ``top_k``; never more than there are. Raises ValueError."""
    given = parameters.get("top_k", default)
    try:
        count = int(given)
    except (TypeError, ValueError):
        count = 0
    if count < 1:
        raise ValueError(f"top_k is {given!r}; it takes a whole number from 1")
    return min(count, classes)
