"""What a model may say of a metric of its own: names, texts, labels and buckets, and how much of them."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
_KINDS = [COUNTER, GAUGE, HISTOGRAM]
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
TEXT_LIMIT = 1024
"""Bytes of a name, a description, or a label's value."""
LABEL_LIMIT = 64
BUCKET_LIMIT = 1000


class MetricError(ValueError):
    """A metric that cannot be made; the model is told why."""


def family_of(details: dict[str, Any]) -> tuple[str, str, str]:
    """The name, description and kind that a model wants a family to have. Raises MetricError."""
    name = _text("the name of a metric family", details["name"])
    if not _NAME.fullmatch(name):
        raise MetricError(f"'{name}' is no name for a metric")
    if name.startswith("nv_"):
        raise MetricError(f"'{name}' is no name for a model's metric: names with nv_ are the server's")
    description = _text(f"the description of metric family '{name}'", details["description"])
    return name, description, _KINDS[details["kind"]]


def labels_of(labels: dict[Any, Any], kind: str) -> dict[str, str]:
    """The labels that a model wants a metric to have. Raises MetricError."""
    if len(labels) > LABEL_LIMIT:
        raise MetricError(f"{len(labels)} labels are too many for one metric: at most {LABEL_LIMIT}")
    checked: dict[str, str] = {}
    for key, value in labels.items():
        name = _text("the name of a label", key)
        if not _LABEL.fullmatch(name) or name.startswith("__") or (kind == HISTOGRAM and name == "le"):
            raise MetricError(f"'{name}' is no name for a label of a {kind}")
        checked[name] = _text(f"the value of label '{name}'", value)
    return checked


def bounds_of(buckets: Any) -> list[float]:
    """The upper bounds of a histogram's buckets, but for the last, which has none. Raises MetricError."""
    try:
        if len(buckets or ()) > BUCKET_LIMIT:
            raise MetricError(f"{len(buckets)} buckets are too many for one metric: at most {BUCKET_LIMIT}")
        bounds = [float(bound) for bound in buckets or ()]
    except (TypeError, OverflowError):
        raise MetricError("buckets must be numbers") from None
    except ValueError as error:
        raise error if isinstance(error, MetricError) else MetricError("buckets must be numbers") from None
    if any(high <= low for low, high in itertools.pairwise(bounds)) or any(map(math.isnan, bounds)):
        raise MetricError("buckets must be in ascending order")
    return bounds[:-1] if bounds and bounds[-1] == math.inf else bounds


def _text(what: str, given: Any) -> str:
    """``given`` as text that can be written as UTF-8: half a surrogate pair becomes a question mark."""
    raw = str(given).encode("utf-8", "replace")
    if len(raw) > TEXT_LIMIT:
        raise MetricError(f"{what} is too long: {len(raw)} bytes, at most {TEXT_LIMIT}")
    return raw.decode("utf-8")
