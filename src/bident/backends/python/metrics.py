"""The metrics that models make themselves: kept here, whichever worker made or changed them."""

from __future__ import annotations

import bisect
import itertools
import math
import re
import threading
from collections.abc import Iterator
from typing import Any

from bident.backends.python.messages import MetricCall, MetricChange

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
_KINDS = [COUNTER, GAUGE, HISTOGRAM]
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SERIES_LIMIT = 100_000


class MetricError(ValueError):
    """A metric that cannot be made; the model is told why."""


class _Series:
    __slots__ = ("bounds", "counts", "holders", "labels", "total", "value")

    def __init__(self, labels: dict[str, str], bounds: list[float]) -> None:
        self.labels = labels
        self.bounds = bounds
        self.value = 0.0
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.holders = 0


class _Family:
    def __init__(self, name: str, description: str, kind: str) -> None:
        self.name = name
        self.description = description
        self.kind = kind
        self.series: dict[tuple[tuple[str, str], ...], _Series] = {}
        self.holders = 0


class CustomMetrics:
    """All models' own metrics. One for the server; safe for threads.

    Families of one name are one family, and series of one family with the same labels one series,
    wherever they were made: they count together, and go when the last model lets go of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: dict[str, _Family] = {}

    def lines(self) -> Iterator[str]:
        """The exposition, in Prometheus' text format."""
        with self._lock:
            text = [line for family in self._families.values() for line in _lines(family)]
        return iter(text)

    def worker(self) -> WorkerMetrics:
        """The metrics that one worker holds."""
        return WorkerMetrics(self)


class WorkerMetrics:
    """One worker's hold on metrics, by the numbers that it knows them by."""

    def __init__(self, all_metrics: CustomMetrics) -> None:
        self._all = all_metrics
        self._last_id = 0
        self._families: dict[int, _Family] = {}
        self._series: dict[int, tuple[_Family, _Series]] = {}

    def answer(self, call: MetricCall) -> dict[str, Any]:
        """What to answer ``call`` with: keyword arguments for ``Worker.answer_call``."""
        try:
            with self._all._lock:
                if call.what == "metric_family":
                    return {"id": self._family(call.details)}
                if call.what == "metric":
                    return {"id": self._metric(call.details)}
                return {"value": repr(self._series[call.details["id"]][1].value)}  # as text: JSON has no infinities
        except MetricError as error:
            return {"error": str(error)}
        except KeyError:
            return {"error": "the metric does not exist"}

    def apply(self, change: MetricChange) -> None:
        """Make ``change``; one to a metric that does not exist is none."""
        with self._all._lock:
            if change.do == "delete_family":
                self._let_go_of_family(change.id)
            elif change.id in self._series:
                self._apply(change)

    def close(self) -> None:
        """The worker is gone: let go of everything it held."""
        with self._all._lock:
            for number in list(self._series):
                self._let_go_of_series(number)
            for number in list(self._families):
                self._let_go_of_family(number)

    def _apply(self, change: MetricChange) -> None:
        family, series = self._series[change.id]
        value = change.value
        if change.do == "delete":
            self._let_go_of_series(change.id)
        elif change.do == "set" and family.kind == GAUGE:
            series.value = value
        elif change.do == "increment" and (family.kind == GAUGE or (family.kind == COUNTER and value >= 0)):
            series.value += value
        elif change.do == "observe" and family.kind == HISTOGRAM:
            series.counts[bisect.bisect_left(series.bounds, value)] += 1
            series.total += value

    def _family(self, details: dict[str, Any]) -> int:
        name, description = str(details["name"]), str(details["description"])
        if not _NAME.fullmatch(name):
            raise MetricError(f"'{name}' is no name for a metric")
        if name.startswith("nv_"):
            raise MetricError(f"'{name}' is no name for a model's metric: names with nv_ are the server's")
        kind = _KINDS[details["kind"]]
        family = self._all._families.get(name)
        if family is None:
            family = self._all._families[name] = _Family(name, description, kind)
        if family.kind != kind:
            raise MetricError(f"metric family '{name}' exists already, as a {family.kind}")
        family.holders += 1
        return self._number(self._families, family)

    def _metric(self, details: dict[str, Any]) -> int:
        family = self._families.get(details["family"])
        if family is None:
            raise MetricError("the metric family does not exist")
        labels = {str(key): str(value) for key, value in details["labels"].items()}
        for label in labels:
            if not _LABEL.fullmatch(label) or label.startswith("__") or (family.kind == HISTOGRAM and label == "le"):
                raise MetricError(f"'{label}' is no name for a label of a {family.kind}")
        bounds = _bounds(details.get("buckets"))
        key = tuple(sorted(labels.items()))
        series = family.series.get(key)
        if series is None:
            if sum(len(each.series) for each in self._all._families.values()) >= _SERIES_LIMIT:
                raise MetricError(f"there are {_SERIES_LIMIT} metrics already")
            series = family.series[key] = _Series(labels, bounds)
        if series.bounds != bounds:
            raise MetricError(f"metric '{family.name}' with these labels exists already, with other buckets")
        series.holders += 1
        return self._number(self._series, (family, series))

    def _number(self, held: dict[int, Any], thing: Any) -> int:
        self._last_id += 1
        held[self._last_id] = thing
        return self._last_id

    def _let_go_of_series(self, number: int) -> None:
        family, series = self._series.pop(number)
        series.holders -= 1
        if series.holders == 0:
            del family.series[tuple(sorted(series.labels.items()))]

    def _let_go_of_family(self, number: int) -> None:
        family = self._families.pop(number, None)
        if family is None:
            return
        family.holders -= 1
        if family.holders == 0:
            self._all._families.pop(family.name, None)


def _bounds(buckets: Any) -> list[float]:
    try:
        bounds = [float(bound) for bound in buckets or ()]
    except (TypeError, ValueError):
        raise MetricError("buckets must be numbers") from None
    if any(high <= low for low, high in itertools.pairwise(bounds)) or any(map(math.isnan, bounds)):
        raise MetricError("buckets must be in ascending order")
    return bounds


def _lines(family: _Family) -> Iterator[str]:
    description = family.description.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {family.name} {description}"
    yield f"# TYPE {family.name} {family.kind}"
    for series in family.series.values():
        if family.kind != HISTOGRAM:
            yield f"{family.name}{_labels(series.labels)} {_written(series.value)}"
            continue
        running = 0
        for bound, count in zip([*series.bounds, math.inf], series.counts, strict=True):
            running += count
            yield f"{family.name}_bucket{_labels({**series.labels, 'le': _written(bound)})} {running}"
        yield f"{family.name}_sum{_labels(series.labels)} {_written(series.total)}"
        yield f"{family.name}_count{_labels(series.labels)} {running}"


def _labels(labels: dict[str, str]) -> str:
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
