"""What one model version has done: the figures behind ``/stats`` and the metrics page.

Every figure is added up once per batch (never per request), on the event loop only, so nothing here
needs a lock. Durations are nanoseconds. Names follow Triton's *statistics* extension: counts of
queue and compute cover successful requests only; a batch's compute time counts once for each
request in it; ``executions`` counts runs of the model, also those that failed, and ``inferences`` the
rows that were answered with a result.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from bident.engine.summaries import Summaries
from bident.observe.histogram import Histogram


class FailureReason(Enum):
    """The ``reason`` label of ``nv_inference_request_failure``."""

    REJECTED = "REJECTED"
    CANCELED = "CANCELED"
    BACKEND = "BACKEND"
    OTHER = "OTHER"


@dataclass
class Duration:
    """How often something happened and how long it took in all."""

    count: int = 0
    ns: int = 0

    def add(self, count: int, ns: int) -> None:
        """Add ``count`` happenings that took ``ns`` nanoseconds together."""
        self.count += count
        self.ns += ns

    def as_dict(self) -> dict[str, int]:
        """Triton's JSON form."""
        return {"count": self.count, "ns": self.ns}


@dataclass
class BatchSizeStats:
    """Compute time of the executions of one batch size."""

    executions: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0

    def as_dict(self, rows: int) -> dict[str, object]:
        """Triton's JSON form."""
        return {
            "batch_size": rows,
            "compute_input": {"count": self.executions, "ns": self.input_ns},
            "compute_infer": {"count": self.executions, "ns": self.infer_ns},
            "compute_output": {"count": self.executions, "ns": self.output_ns},
        }


MOST_RESPONSES = 1000
"""So many responses to a request have figures of their own; a stream may have no end."""


@dataclass
class ResponseStats:
    """What became of the responses of a decoupled model that came at one place of their streams."""

    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    empty_response: Duration = field(default_factory=Duration)
    cancel: Duration = field(default_factory=Duration)

    def as_dict(self) -> dict[str, object]:
        """Triton's JSON form."""
        return {name: duration.as_dict() for name, duration in vars(self).items()}


@dataclass
class ModelStats:
    """The figures of one model version since it was first loaded.

    ``summaries`` and ``first_response`` (milliseconds to a decoupled model's first response) are there if they
    are wanted.
    """

    inferences: int = 0
    executions: int = 0
    last_inference_ms: int = 0
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    cache_hit: Duration = field(default_factory=Duration)
    cache_miss: Duration = field(default_factory=Duration)
    batches: dict[int, BatchSizeStats] = field(default_factory=dict)
    failures: dict[FailureReason, int] = field(default_factory=lambda: dict.fromkeys(FailureReason, 0))
    responses: dict[int, ResponseStats] = field(default_factory=dict)
    load_seconds: float = 0.0
    summaries: Summaries | None = None
    first_response: Histogram | None = None

    def record_batch(
        self,
        requests: int,
        rows: int,
        queue_ns: int,
        request_ns: int,
        input_ns: int,
        infer_ns: int,
        output_ns: int,
        executed_rows: int,
    ) -> None:
        """Add one successful execution, or what else came of one that has been counted (``executed_rows`` is 0).

        ``queue_ns`` and ``request_ns`` are summed over the batch's requests; the others are the
        batch's own times: getting its inputs together, in the model, being split and written.
        ``rows`` is what has been answered of the ``executed_rows``.
        """
        self.inferences += rows
        self.last_inference_ms = time.time_ns() // 1_000_000
        self.success.add(requests, request_ns)
        self.queue.add(requests, queue_ns)
        self.compute_input.add(requests, requests * input_ns)
        self.compute_infer.add(requests, requests * infer_ns)
        self.compute_output.add(requests, requests * output_ns)
        if executed_rows:
            self.record_execution(executed_rows, input_ns, infer_ns, output_ns)

    def record_execution(self, rows: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """Add one run of the model on ``rows``, whatever came of it."""
        self.last_inference_ms = time.time_ns() // 1_000_000
        self.executions += 1
        size = self.batches.get(rows)
        if size is None:
            size = self.batches[rows] = BatchSizeStats()
        size.executions += 1
        size.input_ns += input_ns
        size.infer_ns += infer_ns
        size.output_ns += output_ns

    def response(self, index: int) -> ResponseStats:
        """The figures of the response at ``index`` of every stream; those late in a stream share one."""
        index = min(index, MOST_RESPONSES - 1)
        found = self.responses.get(index)
        if found is None:
            found = self.responses[index] = ResponseStats()
        return found

    def record_cache_hit(self, request_ns: int, lookup_ns: int) -> None:
        """Add one request whose answer was kept: it neither waited nor ran, and counts as no inference."""
        self.success.add(1, request_ns)
        self.queue.add(1, 0)
        self.cache_hit.add(1, lookup_ns)
        if self.summaries is not None:
            self.summaries.record_cache_hit(request_ns, lookup_ns)

    def record_cache_miss(self, ns: int) -> None:
        """Add the time it took to find no answer and to keep the one that came; its request counts that in too."""
        self.success.ns += ns
        self.cache_miss.add(1, ns)
        if self.summaries is not None:
            self.summaries.record_cache_miss(ns)

    def record_failure(self, reason: FailureReason, request_ns: int) -> None:
        """Add one request that got no result."""
        self.fail.add(1, request_ns)
        self.failures[reason] += 1

    def as_dict(self) -> dict[str, object]:
        """Triton's JSON form, without the model's name and version."""
        return {
            "last_inference": self.last_inference_ms,
            "inference_count": self.inferences,
            "execution_count": self.executions,
            "inference_stats": {
                "success": self.success.as_dict(),
                "fail": self.fail.as_dict(),
                "queue": self.queue.as_dict(),
                "compute_input": self.compute_input.as_dict(),
                "compute_infer": self.compute_infer.as_dict(),
                "compute_output": self.compute_output.as_dict(),
                "cache_hit": self.cache_hit.as_dict(),
                "cache_miss": self.cache_miss.as_dict(),
            },
            "response_stats": {str(index): figures.as_dict() for index, figures in sorted(self.responses.items())},
            "batch_stats": [size.as_dict(rows) for rows, size in sorted(self.batches.items())],
            "memory_usage": [],
        }


class Figures(NamedTuple):
    """What one version of a model has done."""

    name: str
    version: int
    stats: ModelStats
