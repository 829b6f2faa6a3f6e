"""Which sequences of an instance run together, and when: Triton's *direct* and *oldest* strategies.

Pure decisions, no clock, no loop. A declared delay is an upper bound: it is spent only while a
sequence that has a slot may still send what would fill the batch (docs/decisions/0002-tick-batching.md).
"""

from __future__ import annotations

import dataclasses
from itertools import islice
from typing import NamedTuple, Protocol

from bident.engine.batching import BatchPolicy
from bident.engine.sequence.slots import Sequence, Station
from bident.model.config import DynamicBatching, ModelConfig
from bident.model.sequence_batching import SequenceBatching


class Choice(NamedTuple):
    """The sequences of the next batch, None for a place that stays empty; ``may_wait`` if it could be fuller."""

    sequences: list[Sequence | None]
    may_wait: bool


class Strategy(Protocol):
    """How one model's sequences become batches."""

    slots: int
    """How many sequences may have a slot in one instance."""

    def choose(self, station: Station) -> Choice:
        """The next batch of ``station``, in which at least one sequence is ready."""


def strategy_of(config: ModelConfig, batching: SequenceBatching) -> Strategy:
    """The strategy that ``config`` declares; without one it is *direct*."""
    return Oldest(config, batching) if batching.is_oldest else Direct(config, batching)


class Direct:
    """A sequence keeps its place in the batch; places whose sequence has no request stay empty."""

    def __init__(self, config: ModelConfig, batching: SequenceBatching) -> None:
        self.slots = max(1, config.max_batch_size)
        self._waits = batching.max_queue_delay_us > 0
        self._enough = batching.minimum_slot_utilization

    def choose(self, station: Station) -> Choice:
        """Every request that is ready, has the inputs and shapes of the one that came first, and none other."""
        ready = station.ready
        first = min((sequence.waiting[0] for sequence in ready), key=lambda request: request.queued_ns)
        chosen = [
            held if held is not None and held in ready and held.waiting[0].signature == first.signature else None
            for held in station.slots
        ]
        while chosen[-1] is None:
            chosen.pop()
        may_wait = self._waits and len(ready) / self.slots < self._enough
        return Choice(chosen, may_wait)


class Oldest:
    """Whichever sequences have a request, in the order in which they came."""

    def __init__(self, config: ModelConfig, batching: SequenceBatching) -> None:
        self.slots = batching.max_candidates or max(1, config.max_batch_size)
        self._waits = batching.max_queue_delay_us > 0
        as_dynamic = DynamicBatching(batching.preferred_batch_sizes, batching.max_queue_delay_us)
        self._policy = BatchPolicy(dataclasses.replace(config, dynamic_batching=as_dynamic))

    def choose(self, station: Station) -> Choice:
        """The first requests that agree in inputs and shapes, as many as a dynamic batcher would take."""
        plan = self._policy.plan(sequence.waiting[0] for sequence in station.ready)
        return Choice(list(islice(station.ready, plan.take)), self._waits and plan.could_grow)
