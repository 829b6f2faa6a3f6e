"""Adds up what several workers say of themselves: pages of metrics, and figures of models."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

_ADDED_GAUGES = frozenset({"nv_inference_pending_request_count", "nv_cache_num_entries", "nv_cache_num_evictions"})
"""Gauges of the server itself that are a worker's own; of the others, which are the machine's, the highest counts."""
_CUMULATIVE = ("counter", "histogram", "summary")
_QUANTILE = re.compile(r'[{,]quantile="')
_HIGHEST_FIELDS = frozenset({"last_inference_ms", "load_seconds"})
"""Figures that are no sums."""


@dataclass
class _Family:
    head: dict[str, str] = field(default_factory=dict)
    kind: str = "untyped"
    name: str = ""
    samples: dict[str, float] = field(default_factory=dict)

    def add(self, key: str, value: float) -> None:
        """Join ``value`` with what other pages have for ``key``."""
        before = self.samples.get(key)
        if before is None:
            self.samples[key] = value
        else:
            self.samples[key] = max(before, value) if self._is_highest(key) else before + value

    def _is_highest(self, key: str) -> bool:
        if self.kind == "gauge":
            return self.name.startswith("nv_") and self.name not in _ADDED_GAUGES
        return self.kind == "summary" and _QUANTILE.search(key) is not None


def add_pages(pages: Iterable[str]) -> str:
    """One page of metrics of all ``pages``, in Prometheus' text format, as one server would have written it.

    Counters, histograms and what a worker has of its own are added; of quantiles and of what concerns the
    machine the highest counts. Families keep the order in which they first come.
    """
    return "".join(_written(family) for family in _families(pages).values())


def cumulative(page: str) -> str:
    """What of ``page`` goes on counting after the worker that wrote it has ended."""
    kept = (family for family in _families([page]).values() if family.kind in _CUMULATIVE)
    return "".join(_written(family) for family in kept)


def added(first: Any, second: Any) -> Any:
    """Two figures of one kind added: numbers, dictionaries by key, dataclasses by field. Neither is changed."""
    if is_dataclass(first) and not isinstance(first, type):
        both = copy.copy(first)
        for part in fields(first):
            setattr(both, part.name, _joined(part.name, getattr(first, part.name), getattr(second, part.name)))
        return both
    if isinstance(first, dict):
        shared = {key: added(value, second[key]) for key, value in first.items() if key in second}
        return {**first, **second, **shared}
    if isinstance(first, list):
        return [added(*pair) for pair in zip(first, second, strict=False)]
    return first + second if isinstance(first, (int, float)) and not isinstance(first, bool) else first


def _joined(name: str, first: Any, second: Any) -> Any:
    return max(first, second) if name in _HIGHEST_FIELDS else added(first, second)


def _families(pages: Iterable[str]) -> dict[str, _Family]:
    families: dict[str, _Family] = {}
    for page in pages:
        family = _Family()
        for line in page.splitlines():
            if line.startswith("# "):
                _, word, name, *rest = line.split(" ", 3)
                family = families.setdefault(name, _Family(name=name))
                if word == "TYPE":
                    family.kind = "".join(rest)
                family.head.setdefault(word, line)
            elif line:
                key, _, text = line.rpartition(" ")
                family.add(key, _number(text))
    return families


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _written(family: _Family) -> str:
    samples = [f"{key} {value!r}\n" for key, value in family.samples.items()]
    return "".join([*(f"{line}\n" for line in family.head.values()), *samples])
