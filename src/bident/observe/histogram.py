"""Counts of values by size: what the histograms of the metrics page are made of."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Histogram:
    """Values counted in buckets up to and including each of ``bounds``, which rise, and one for larger ones."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        """Add ``value``."""
        self.sum += value
        self._counts[bisect_left(self.bounds, value)] += 1

    @property
    def cumulative(self) -> list[int]:
        """How many values were at most each of the bounds, and how many there were."""
        return list(accumulate(self._counts))
