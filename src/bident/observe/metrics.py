"""Prometheus text exposition, written by hand: Triton's counters have no ``_total``.

Format 0.0.4: one HELP and one TYPE line per family, label values escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bident.observe.histogram import Histogram

CONTENT_TYPE = b"text/plain; charset=utf-8"


@dataclass(frozen=True)
class Family:
    """One metric: its name, kind (``counter``, ``gauge``, ``summary`` or ``histogram``) and what it means."""

    name: str
    kind: str
    help: str


Sample: TypeAlias = tuple[str, Mapping[str, str], float]
"""What comes after the family's name, the labels, and the value."""


def render(family: Family, samples: Iterable[tuple[Mapping[str, str], float]]) -> str:
    """The lines of ``family``: each sample is its labels and its value."""
    return render_samples(family, (("", labels, value) for labels, value in samples))


def render_samples(family: Family, samples: Iterable[Sample]) -> str:
    """The lines of ``family``, a summary or a histogram, whose samples have names of their own."""
    lines = [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
    for suffix, labels, value in samples:
        text = ",".join(f'{key}="{escape(label)}"' for key, label in sorted(labels.items()))
        name = family.name + suffix
        lines.append(f"{name}{{{text}}} {_number(value)}" if text else f"{name} {_number(value)}")
    return "\n".join(lines) + "\n"


def histogram_samples(labels: Mapping[str, str], histogram: Histogram) -> Iterator[Sample]:
    """The samples of a histogram with ``labels``."""
    counts = histogram.cumulative
    yield "_count", labels, counts[-1]
    yield "_sum", labels, histogram.sum
    for bound, count in zip(histogram.bounds, counts, strict=False):
        yield "_bucket", {**labels, "le": f"{bound:g}"}, count
    yield "_bucket", {**labels, "le": "+Inf"}, counts[-1]


def escape(label: str) -> str:
    """A label's value as the format wants it."""
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return "NaN" if math.isnan(value) else repr(float(value))
