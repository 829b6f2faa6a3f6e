"""Sequences, and the places that instances have for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Listed
from typing import Any, Protocol

from bident.engine.batch import Batch
from bident.engine.lane import Lane
from bident.engine.request_lane import RequestLane
from bident.engine.sequence.states import Kept
from bident.errors import ServeError
from bident.wire.infer import Column, InferRequest

Key = int | str


class Sequence:
    """The requests of one sequence that have not been answered, in their order."""

    __slots__ = (
        "deadline_ns",
        "is_answered",
        "is_executed",
        "is_open",
        "is_rescheduled",
        "kept",
        "key",
        "number",
        "running",
        "station",
        "waiting",
        "wanted",
    )

    def __init__(self, key: Key) -> None:
        self.key = key
        self.waiting: deque[InferRequest] = deque()
        self.running: InferRequest | None = None
        """The request that the model has now."""
        self.is_executed = self.is_answered = self.is_rescheduled = False
        """What has become of ``running``, or of the last one; one that is to run again counts as answered."""
        self.wanted: list[str] | None = None
        """The outputs that ``running`` was sent to ask for."""
        self.is_open = True
        """Whether it takes further requests: until its END."""
        self.station: Station | None = None
        """The instance in which it has a slot; None in the backlog, and once it has ended."""
        self.number = 0
        """Which slot that is."""
        self.kept: Kept = {}
        """Its implicit states."""
        self.deadline_ns = 0
        """Until when it may wait for a slot, on the monotonic clock; 0 is for ever."""


class House(Protocol):
    """Who gives stations their batches."""

    def station_changed(self, station: Station) -> None:
        """Its instance has gone, or has come back."""

    def station_freed(self, executed: Listed[Sequence]) -> None:
        """The batch with requests of these has been executed; the next can come."""


class Hearer(Protocol):
    """Who hears the answers to the requests of batches."""

    def batch_answered(self, batch: Batch) -> None:
        """Whatever of ``batch`` awaited an answer has it."""

    def request_answered(
        self,
        batch: Batch,
        request: InferRequest,
        answer: Listed[Column] | ServeError,
        parameters: dict[str, Any] | None,
        *,
        final: bool,
    ) -> None:
        """One answer has come for one request of ``batch``."""


class Station:
    """One instance, and the sequences that have a slot in it. Hears from its lane (request_lane.Owner)."""

    def __init__(self, lane: Lane | RequestLane, limit: int, house: House, answers: Hearer) -> None:
        """``limit``: how many slots there are."""
        self.lane = lane
        self.limit = limit
        self.slots: list[Sequence | None] = []
        """Who has which slot, up to the highest that has been in use."""
        self.ready: dict[Sequence, None] = {}
        """Those whose first waiting request can run, in the order in which that came about."""
        self.executing: Listed[Sequence] | None = None
        """Whose requests the batch has that the instance executes; None if it can take one."""
        self._house = house
        self._answers = answers
        if isinstance(lane, RequestLane):
            lane.owner = self

    @property
    def is_available(self) -> bool:
        """Whether the instance is there."""
        return not isinstance(self.lane, RequestLane) or self.lane.is_available

    @property
    def may_fill(self) -> bool:
        """Whether more requests may soon be ready: a sequence that has a slot has none."""
        return any(held is not None and held.is_open and held not in self.ready for held in self.slots)

    def run(self, batch: Batch, sequences: Listed[Sequence]) -> None:
        """Have ``batch``, with requests of ``sequences``, executed here and now, on a thread or elsewhere."""
        self.executing = sequences
        if isinstance(self.lane, RequestLane):
            self.lane.run(batch)
        elif self.lane.is_quick(batch.requests, batch.rows):
            self.lane.execute(batch)
            self._done(batch)
            self.lane.learn(batch)
        else:
            self.lane.run_on_thread(batch, self._done)

    def _done(self, batch: Batch) -> None:
        self._answers.batch_answered(batch)
        self._free()

    def _free(self) -> None:
        executed, self.executing = self.executing, None
        if executed is not None:
            self._house.station_freed(executed)

    def lane_changed(self) -> None:
        """The instance has gone, or has come back."""
        self._house.station_changed(self)

    def lane_freed(self, lane: RequestLane) -> None:
        """The batch has been executed."""
        self._free()

    def batch_answered(self, batch: Batch, count: int) -> None:
        """Whatever of ``batch`` awaited an answer has it."""
        self._answers.batch_answered(batch)

    def request_answered(
        self,
        batch: Batch,
        request: InferRequest,
        answer: Listed[Column] | ServeError,
        parameters: dict[str, Any] | None,
        *,
        final: bool,
    ) -> None:
        """One answer has come."""
        self._answers.request_answered(batch, request, answer, parameters, final=final)
