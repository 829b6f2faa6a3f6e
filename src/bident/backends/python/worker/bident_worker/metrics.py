"""``pb_utils.MetricFamily``: the model's own metrics, kept by the server."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

from .errors import TritonModelException
from .frames import Kind
from .runtime import Runtime, current


class MetricKind(Enum):
    """What a metric measures."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


def _refused(doing: str, runtime: Runtime, why: str) -> TritonModelException:
    return TritonModelException(
        f"{doing}: Failed to process the request for model '{runtime.instance_name}', message: {why}"
    )


def _asked(runtime: Runtime, doing: str, what: str, **details: Any) -> dict[str, Any]:
    header: dict[str, Any] = runtime.link.ask(what, **details).header
    if "error" in header:
        raise _refused(doing, runtime, header["error"])
    return header


class Metric:
    """One series of a family. Made by ``MetricFamily.Metric``; goes when the model lets go of it."""

    def __init__(self, family: MetricFamily, labels: dict[str, str], buckets: list[float] | None) -> None:
        self._family = family
        self._runtime = family._runtime
        doing = "Error when creating Metric"
        if not all(isinstance(word, str) for pair in labels.items() for word in pair):
            raise _refused(doing, self._runtime, "attempt to access JSON non-string as string")
        answer = _asked(self._runtime, doing, "metric", family=family._id, labels=labels, buckets=buckets)
        self._id: int = answer["id"]

    def increment(self, value: float) -> None:
        """Add ``value``; a counter never takes a negative one."""
        self._change("increment", "Increment", value, MetricKind.COUNTER, MetricKind.GAUGE)

    def set(self, value: float) -> None:
        """Set a gauge to ``value``."""
        self._change("set", "Set", value, MetricKind.GAUGE)

    def observe(self, value: float) -> None:
        """Add ``value`` to a histogram."""
        self._change("observe", "Observe", value, MetricKind.HISTOGRAM)

    def value(self) -> float:
        """The present value of a counter or a gauge, whoever changed it."""
        doing = "Failed to get metric value"
        self._supported(doing, "Value", MetricKind.COUNTER, MetricKind.GAUGE)
        return float(_asked(self._runtime, doing, "metric_value", id=self._id)["value"])

    def _change(self, verb: str, word: str, value: float, *kinds: MetricKind) -> None:
        doing = f"Failed to {verb} metric value"
        self._supported(doing, word, *kinds)
        amount = float(value)
        if self._family._kind is MetricKind.COUNTER and not amount >= 0:
            raise _refused(
                doing,
                self._runtime,
                "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values.",
            )
        # As text: JSON has no infinities.
        self._runtime.link.send(Kind.METRIC, {"id": self._id, "do": verb, "value": repr(amount)})

    def _supported(self, doing: str, word: str, *kinds: MetricKind) -> None:
        kind = self._family._kind
        if kind not in kinds:
            raise _refused(doing, self._runtime, f"TRITONSERVER_METRIC_KIND_{kind.name} does not support {word}")

    def __del__(self) -> None:
        if hasattr(self, "_id"):
            self._runtime.link.send_aside(Kind.METRIC, {"id": self._id, "do": "delete"})


class MetricFamily:
    """A metric's name, description and kind."""

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        if not isinstance(kind, MetricKind):
            raise TypeError(f"MetricFamily takes a kind such as MetricFamily.COUNTER, found {type(kind)}")
        self._runtime = current()
        self._kind = kind
        answer = _asked(
            self._runtime,
            "Error when creating MetricFamily",
            "metric_family",
            name=name,
            description=description,
            kind=kind.value,
        )
        self._id: int = answer["id"]

    def Metric(self, labels: Any = None, buckets: Any = None) -> Metric:  # noqa: N802 - Triton's name
        """A series of the family, with its ``labels``; a histogram with its ``buckets``."""
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        if buckets is not None and not isinstance(buckets, list):
            raise TritonModelException("Failed to create metric. Buckets must be a list.")
        if self._kind is MetricKind.HISTOGRAM and buckets is None:
            raise TritonModelException("Failed to create metric. Missing required buckets.")
        if self._kind is not MetricKind.HISTOGRAM and buckets:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        # Through JSON: what it cannot carry is refused here, with a Python error.
        return Metric(self, labels or {}, json.loads(json.dumps(buckets)))

    def __del__(self) -> None:
        if hasattr(self, "_id"):
            self._runtime.link.send_aside(Kind.METRIC, {"id": self._id, "do": "delete_family"})


# Triton has the kinds' type inside of the family's.
MetricFamily.MetricKind = MetricKind  # type: ignore[attr-defined]
