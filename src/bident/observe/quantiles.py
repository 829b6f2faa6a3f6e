"""Quantiles of what was seen lately, in little memory and time: what the summaries of the metrics page are made of.

A window is made of slices of time, of which the oldest goes when a new one begins. Each keeps its values in a sketch
as Manku, Rajagopalan and Lindsay's ("Approximate medians and other quantiles in one pass", SIGMOD 1998): buffers of
one size, of which a full one is sorted, and every second value goes on with twice the weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

_SLICES = 5
_SLICE_NS = 12_000_000_000
"""The window is five times as long: a minute, as in Prometheus' client libraries."""
_LARGEST_BUFFER = 10_000
_SHARE = 4
"""How much better than asked for one buffer is: errors of several of them add up."""


class Sketch:
    """Keeps some of the values it was given, with the weight of those that it did not keep."""

    def __init__(self, size: int) -> None:
        """``size``: so many values are kept before any are let go; ranks are then wrong by about 1 / ``size``."""
        self._size = size
        self._levels: list[list[float]] = [[]]
        """Those at index ``n`` stand for ``2 ** n`` values each."""
        self._first = 0

    def add(self, values: Iterable[float]) -> None:
        """Add ``values``."""
        self._levels[0] += values
        for index, level in enumerate(self._levels):
            if len(level) < self._size:
                return
            if index + 1 == len(self._levels):
                self._levels.append([])
            level.sort()
            left = [level.pop()] if len(level) % 2 else []
            # Once the lower of each pair and once the higher, or all of it would drift to one side.
            self._first ^= 1
            self._levels[index + 1] += level[self._first :: 2]
            self._levels[index] = left

    def kept(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The values and the weight of each."""
        values = np.concatenate([np.asarray(level, np.float64) for level in self._levels])
        weights = np.concatenate([np.full(len(level), 1 << index) for index, level in enumerate(self._levels)])
        return values, weights


class Window:
    """The quantiles of what was added within the last minute. Times are monotonic nanoseconds."""

    def __init__(self, targets: Sequence[tuple[float, float]], now_ns: int) -> None:
        """``targets``: quantile and the error that its rank may have, both between 0 and 1, ends excluded."""
        self._targets = targets
        self._size = min(_LARGEST_BUFFER, math.ceil(_SHARE / min(error for _, error in targets)))
        self._slices = [Sketch(self._size)]
        self._since_ns = now_ns

    def add(self, values: Iterable[float], now_ns: int) -> None:
        """Add what was seen ``now_ns``."""
        if now_ns - self._since_ns >= _SLICE_NS:
            self._turn(now_ns)
        self._slices[-1].add(values)

    def quantiles(self, now_ns: int) -> list[float]:
        """The value at each of the targets; not a number where nothing was seen."""
        self._turn(now_ns)
        kept = [sketch.kept() for sketch in self._slices]
        values = np.concatenate([values for values, _ in kept])
        if not values.size:
            return [math.nan] * len(self._targets)
        order = np.argsort(values)
        ranks = np.cumsum(np.concatenate([weights for _, weights in kept])[order])
        wanted = [math.ceil(quantile * int(ranks[-1])) for quantile, _ in self._targets]
        return [float(value) for value in values[order][np.searchsorted(ranks, wanted)]]

    def _turn(self, now_ns: int) -> None:
        """Begin a new slice for each that has passed, and let the oldest go."""
        passed = (now_ns - self._since_ns) // _SLICE_NS
        if passed > 0:
            self._since_ns += passed * _SLICE_NS
            self._slices += [Sketch(self._size) for _ in range(min(passed, _SLICES))]
            del self._slices[:-_SLICES]


class Summary:
    """How many values there were, their sum, and the quantiles of the last minute's."""

    def __init__(self, targets: Sequence[tuple[float, float]], now_ns: int) -> None:
        self.count = 0
        self.sum = 0
        self._window = Window(targets, now_ns)

    def observe(self, values: Sequence[int], now_ns: int) -> None:
        """Add ``values``, seen ``now_ns``."""
        self.count += len(values)
        self.sum += sum(values)
        self._window.add(values, now_ns)

    def quantiles(self, now_ns: int) -> list[float]:
        """As :meth:`Window.quantiles`."""
        return self._window.quantiles(now_ns)
