"""What one model version has done: the figures behind ``/stats`` and the metrics page.

Every figure is added up once per batch (never per request), on the event loop only, so nothing here
needs a lock. Durations are nanoseconds. Names follow Triton's *statistics* extension: counts of
queue and compute cover successful requests only; a batch's compute time counts once for each
request in it; ``executions`` counts runs of the model and ``inferences`` the rows in them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum


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


@dataclass
class ModelStats:
    """The figures of one model version since it was first loaded."""

    inferences: int = 0
    executions: int = 0
    last_inference_ms: int = 0
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    batches: dict[int, BatchSizeStats] = field(default_factory=dict)
    failures: dict[FailureReason, int] = field(default_factory=lambda: dict.fromkeys(FailureReason, 0))
    load_seconds: float = 0.0

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
        if not executed_rows:
            return
        self.executions += 1
        size = self.batches.get(executed_rows)
        if size is None:
            size = self.batches[executed_rows] = BatchSizeStats()
        size.executions += 1
        size.input_ns += input_ns
        size.infer_ns += infer_ns
        size.output_ns += output_ns

    def record_failure(self, reason: FailureReason, request_ns: int) -> None:
        """Add one request that got no result."""
        self.fail.add(1, request_ns)
        self.failures[reason] += 1

    def as_dict(self) -> dict[str, object]:
        """Triton's JSON form, without the model's name and version."""
        nothing = Duration().as_dict()
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
                "cache_hit": nothing,
                "cache_miss": nothing,
            },
            "response_stats": {},
            "batch_stats": [size.as_dict(rows) for rows, size in sorted(self.batches.items())],
            "memory_usage": [],
        }
