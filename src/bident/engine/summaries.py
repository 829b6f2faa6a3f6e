"""Quantiles of one model version's times, for those who want more than sums (``summary_latencies``)."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns

from bident.observe.quantiles import Summary

_US = 1000

Targets = tuple[tuple[float, float], ...]
"""Quantiles and the errors that they may have."""


class Summaries:
    """Microseconds that requests with a result took, and how many of them with what."""

    def __init__(self, targets: Targets) -> None:
        now = monotonic_ns()
        self.targets = targets
        self.request = Summary(targets, now)
        self.queue = Summary(targets, now)
        self.compute_input = Summary(targets, now)
        self.compute_infer = Summary(targets, now)
        self.compute_output = Summary(targets, now)
        self.cache_hit = Summary(targets, now)
        self.cache_miss = Summary(targets, now)

    def record(
        self, request_ns: Sequence[int], queue_ns: Sequence[int], input_ns: int, infer_ns: int, output_ns: int
    ) -> None:
        """Add requests of one batch: how long each took in all and waited, and what the batch took."""
        now = monotonic_ns()
        count = len(request_ns)
        self.request.observe([ns // _US for ns in request_ns], now)
        self.queue.observe([ns // _US for ns in queue_ns], now)
        self.compute_input.observe([input_ns // _US] * count, now)
        self.compute_infer.observe([infer_ns // _US] * count, now)
        self.compute_output.observe([output_ns // _US] * count, now)

    def record_cache_hit(self, request_ns: int, lookup_ns: int) -> None:
        """Add a request whose answer was kept: how long it took in all, and until the answer was found."""
        now = monotonic_ns()
        self.request.observe([request_ns // _US], now)
        self.queue.observe([0], now)
        self.cache_hit.observe([lookup_ns // _US], now)

    def record_cache_miss(self, ns: int) -> None:
        """Add what it took to find no answer, and to keep the one that came."""
        self.cache_miss.observe([ns // _US], monotonic_ns())
