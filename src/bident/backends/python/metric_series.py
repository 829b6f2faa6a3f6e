"""Families and series of the metrics that models make themselves, and how they are written."""

from __future__ import annotations

import bisect
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from bident.backends.python.metric_checks import COUNTER, GAUGE, HISTOGRAM

_NUMBER_SIZE = 32
"""About as many characters as a value takes, with the suffix of its name and its bound."""

Labels = tuple[tuple[str, str], ...]
"""The labels of a series, sorted: what it is found by."""


class Series:
    """The value, or the distribution, that one set of labels stands for."""

    __slots__ = ("bounds", "counts", "holders", "labels", "size", "total", "value")

    def __init__(self, name: str, labels: dict[str, str], bounds: list[float], kind: str) -> None:
        self.labels = labels
        self.bounds = bounds
        self.value = 0.0
        self.counts = [0] * (len(bounds) + 1) if kind == HISTOGRAM else []
        self.total = 0.0
        self.holders = 0
        lines = len(self.counts) + 2 if kind == HISTOGRAM else 1
        self.size = lines * (len(name) + len(_written_labels(labels)) + _NUMBER_SIZE)
        """About as many characters it takes on the page."""

    def change(self, kind: str, do: str, value: float) -> None:
        """``increment``, ``set`` or ``observe``, if its ``kind`` can; else nothing happens."""
        if do == "set" and kind == GAUGE:
            self.value = value
        elif do == "increment" and (kind == GAUGE or (kind == COUNTER and value >= 0)):
            self.value += value
        elif do == "observe" and kind == HISTOGRAM:
            # What is no number is below no bound.
            place = len(self.bounds) if math.isnan(value) else bisect.bisect_left(self.bounds, value)
            self.counts[place] += 1
            self.total += value


@dataclass(slots=True, eq=False)
class Family:
    """What its series have in common."""

    name: str
    description: str
    kind: str
    series: dict[Labels, Series] = field(default_factory=dict)
    holders: int = 0

    def lines(self, lock: threading.Lock) -> Iterator[str]:
        """Its part of the page. ``lock`` guards its series, and is held only for a moment at a time."""
        description = self.description.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {self.name} {description}"
        yield f"# TYPE {self.name} {self.kind}"
        with lock:
            all_series = list(self.series.values())
        for series in all_series:
            labels = _written_labels(series.labels)
            if self.kind != HISTOGRAM:
                yield f"{self.name}{labels} {_written(series.value)}"
                continue
            with lock:  # or the sum would not be that of what has been counted
                counts, total = series.counts.copy(), series.total
            running = 0
            for bound, count in zip([*series.bounds, math.inf], counts, strict=True):
                running += count
                yield f"{self.name}_bucket{_written_labels({**series.labels, 'le': _written(bound)})} {running}"
            yield f"{self.name}_sum{labels} {_written(total)}"
            yield f"{self.name}_count{labels} {running}"


def _written_labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    quoted = [
        '{}="{}"'.format(name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
        for name, value in labels.items()
    ]
    return "{" + ",".join(quoted) + "}"


def _written(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else f"{value:.17g}" if value % 1 else f"{value:.0f}"
