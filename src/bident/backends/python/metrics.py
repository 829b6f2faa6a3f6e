"""The metrics that models make themselves: kept here, whichever worker made or changed them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from bident.backends.python.messages import MetricCall, MetricChange
from bident.backends.python.metric_checks import HISTOGRAM, MetricError, bounds_of, family_of, labels_of
from bident.backends.python.metric_series import Family, Series

FAMILY_LIMIT = 10_000
SERIES_LIMIT = 100_000
HANDLE_LIMIT = 200_000
"""So many families and series may be held; what is held twice counts twice."""
PAGE_LIMIT = 64 << 20
"""About so many characters may all series take on the page."""

_OF_A_HISTOGRAM = ("_bucket", "_sum", "_count")


class CustomMetrics:
    """All models' own metrics. One for the server; safe for threads.

    Families of one name are one family, and series of one family with the same labels one series,
    wherever they were made: they count together, and go when the last model lets go of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: dict[str, Family] = {}
        self._series_count = 0
        self._handle_count = 0
        self._size = 0

    def lines(self) -> Iterator[str]:
        """The exposition, in Prometheus' text format, line by line; any thread may write it, however long it takes."""
        with self._lock:
            families = list(self._families.values())
        for family in families:
            yield from family.lines(self._lock)

    def worker(self) -> WorkerMetrics:
        """The metrics that one worker holds."""
        return WorkerMetrics(self)

    # For WorkerMetrics, which have the lock.

    def _family(self, name: str, description: str, kind: str) -> Family:
        family = self._families.get(name)
        if family is None:
            self._check_family(name, kind)
            family = self._families[name] = Family(name, description, kind)
        if family.kind != kind:
            raise MetricError(f"metric family '{name}' exists already, as a {family.kind}")
        return family

    def _check_family(self, name: str, kind: str) -> None:
        if len(self._families) >= FAMILY_LIMIT:
            raise MetricError(f"there are {FAMILY_LIMIT} metric families already: tell them apart by labels")
        for suffix in _OF_A_HISTOGRAM:
            other = self._families.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if other is not None and other.kind == HISTOGRAM:
                raise MetricError(f"'{name}' is part of histogram '{other.name}': choose another name")
            if kind == HISTOGRAM and name + suffix in self._families:
                raise MetricError(f"histogram '{name}' needs '{name}{suffix}', a metric family: choose another name")

    def _series(self, family: Family, labels: dict[str, str], bounds: list[float]) -> Series:
        key = tuple(sorted(labels.items()))
        series = family.series.get(key)
        if series is None:
            if self._series_count >= SERIES_LIMIT:
                raise MetricError(f"there are {SERIES_LIMIT} metrics already: use labels with fewer values")
            series = Series(family.name, labels, bounds, family.kind)
            if self._size + series.size > PAGE_LIMIT:
                raise MetricError(f"metrics would take more than {PAGE_LIMIT} bytes: use fewer, or fewer buckets")
            family.series[key] = series
            self._series_count += 1
            self._size += series.size
        if series.bounds != bounds:
            raise MetricError(f"metric '{family.name}' with these labels exists already, with other buckets")
        return series

    def _remove_family(self, family: Family) -> None:
        self._families.pop(family.name, None)

    def _remove_series(self, family: Family, series: Series) -> None:
        del family.series[tuple(sorted(series.labels.items()))]
        self._series_count -= 1
        self._size -= series.size


class WorkerMetrics:
    """One worker's hold on metrics, by the numbers that it knows them by."""

    def __init__(self, all_metrics: CustomMetrics) -> None:
        self._all = all_metrics
        self._last_id = 0
        self._families: dict[int, Family] = {}
        self._series: dict[int, tuple[Family, Series]] = {}

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
            elif change.id not in self._series:
                return
            elif change.do == "delete":
                self._let_go_of_series(change.id)
            else:
                family, series = self._series[change.id]
                series.change(family.kind, change.do, change.value)

    def close(self) -> None:
        """The worker is gone: let go of everything it held."""
        with self._all._lock:
            for number in list(self._series):
                self._let_go_of_series(number)
            for number in list(self._families):
                self._let_go_of_family(number)

    def _family(self, details: dict[str, Any]) -> int:
        name, description, kind = family_of(details)
        self._check_handles()
        family = self._all._family(name, description, kind)
        family.holders += 1
        return self._number(self._families, family)

    def _metric(self, details: dict[str, Any]) -> int:
        family = self._families.get(details["family"])
        if family is None:
            raise MetricError("the metric family does not exist")
        labels = labels_of(details["labels"], family.kind)
        bounds = bounds_of(details.get("buckets"))
        self._check_handles()
        series = self._all._series(family, labels, bounds)
        series.holders += 1
        return self._number(self._series, (family, series))

    def _check_handles(self) -> None:
        if self._all._handle_count >= HANDLE_LIMIT:
            raise MetricError(f"models hold {HANDLE_LIMIT} metrics already: make each once, and keep it")

    def _number(self, held: dict[int, Any], thing: Any) -> int:
        self._all._handle_count += 1
        self._last_id += 1
        held[self._last_id] = thing
        return self._last_id

    def _let_go_of_series(self, number: int) -> None:
        family, series = self._series.pop(number)
        self._all._handle_count -= 1
        series.holders -= 1
        if series.holders == 0:
            self._all._remove_series(family, series)

    def _let_go_of_family(self, number: int) -> None:
        family = self._families.pop(number, None)
        if family is None:
            return
        self._all._handle_count -= 1
        family.holders -= 1
        if family.holders == 0:
            self._all._remove_family(family)
