"""Which waiting requests run together: pure decisions, no clock, no queue, no loop.

The rules are Triton's dynamic batcher's, with one change (docs/decisions/0002-tick-batching.md): a
declared ``max_queue_delay`` is an upper bound, spent only while more requests may still arrive.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bident.model.config import ModelConfig
from bident.wire.infer import InferRequest


class Plan(NamedTuple):
    """Run the first ``take`` waiting requests, ``rows`` rows in all; ``could_grow`` if more would still fit."""

    take: int
    rows: int
    could_grow: bool


class BatchPolicy:
    """How one model's waiting requests become batches."""

    def __init__(self, config: ModelConfig) -> None:
        batching = config.dynamic_batching
        self.merges = batching is not None and config.max_batch_size > 1
        self.max_rows = config.max_batch_size if self.merges else 1
        self.delay_ns = batching.max_queue_delay_us * 1000 if batching else 0
        preferred = [size for size in (batching.preferred_batch_sizes if batching else ()) if size <= self.max_rows]
        self._preferred = frozenset(preferred)
        self._target = max(preferred, default=self.max_rows)

    def plan(self, waiting: Iterable[InferRequest]) -> Plan:
        """The next batch from the front of ``waiting`` (which must not be empty).

        Takes requests in order while their signatures agree and the rows fit. A preferred size that
        is reached exactly is taken when the queue cannot fill a larger one.
        """
        count = rows = 0
        preferred: tuple[int, int] | None = None
        signature: object = None
        full = False
        for request in waiting:
            if count == 0:
                signature = request.signature
            elif not self.merges or rows + request.batch_size > self.max_rows or request.signature != signature:
                full = True
                break
            count += 1
            rows += request.batch_size
            if rows in self._preferred:
                preferred = (count, rows)
            if rows >= self._target:
                full = True
                break
        if preferred is not None:
            return Plan(*preferred, could_grow=False)
        return Plan(count, rows, could_grow=self.merges and not full)
