"""The scheduler of a model whose requests belong to sequences.

A sequence begins with START, gets a slot in an instance (or waits in the backlog for one), and keeps
it until END, or until it has been idle for too long. Its requests run one after the other. Which
sequences of an instance run together its strategy decides (``strategies``). Triton's rules, where not
said otherwise in docs/differences.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Listed
from itertools import count
from time import monotonic_ns
from typing import Any

from numpy.typing import NDArray

from bident.engine.absence import Absence
from bident.engine.batch import Batch
from bident.engine.lane import Lane
from bident.engine.request_lane import RequestLane
from bident.engine.sequence import refusals
from bident.engine.sequence.alarm import Alarm
from bident.engine.sequence.answers import Answers
from bident.engine.sequence.batches import Batches
from bident.engine.sequence.slots import Key, Sequence, Station
from bident.engine.sequence.strategies import strategy_of
from bident.engine.sequence.waiting import Backlog, FreeSlots, Idle
from bident.engine.settle import Settler
from bident.engine.stats import FailureReason, ModelStats
from bident.errors import ServeError
from bident.model.config import ModelConfig
from bident.model.sequence_batching import SequenceBatching
from bident.wire.infer import InferRequest

logger = logging.getLogger("bident.engine")

_TICK_BUDGET_NS = 2_000_000
"""How long inline executions may keep the loop before other connections get their turn."""


class SequenceScheduler:
    """Owns the sequences of one model version. Lives on the event loop."""

    def __init__(
        self,
        config: ModelConfig,
        version: str,
        lanes: Listed[Lane | RequestLane],
        stats: ModelStats,
        loop: asyncio.AbstractEventLoop,
        initial: Mapping[str, NDArray[Any]],
    ) -> None:
        """``initial``: what each implicit state is at the start of a sequence, by the name of its input."""
        batching = config.sequence_batching or SequenceBatching()
        self._name = config.name
        self._loop = loop
        self._settler = Settler(config, version, stats)
        self._batches = Batches(config, batching, initial)
        self._strategy = strategy_of(config, batching)
        self._delay_ns = batching.max_queue_delay_us * 1000
        self._is_iterative = batching.is_iterative
        self._needs_answer = not config.decoupled or batching.is_iterative or self._batches.have_states
        self._ids = count(1)
        self._open: dict[Key, Sequence] = {}
        """The sequences that take further requests."""
        self._answers = Answers(self._settler, self._batches, self._note_answered)
        self._idle = Idle(batching.max_idle_us * 1000)
        self._backlog = Backlog()
        self._stations = [Station(lane, self._strategy.slots, self, self._answers) for lane in lanes]
        self._free = FreeSlots(self._stations)
        self._absence = Absence([lane for lane in lanes if isinstance(lane, RequestLane)])
        if batching.is_iterative:
            for lane in self._absence.lanes:
                lane.reschedule = self._run_again
        self._absence.look(monotonic_ns())
        self._armed = False
        self._alarm = Alarm(loop, self._tick)
        self._is_draining = self._is_closing = False
        self.pending = 0
        """Requests accepted and not yet executing."""
        self.on_idle: Callable[[], None] | None = None
        """Called whenever nothing is queued or running any more."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued or running. Sequences may be open all the same."""
        return not self.pending and not self._answers.expected

    @property
    def has_sequences(self) -> bool:
        """Whether sequences are under way that may go on."""
        return bool(self._open)

    def drain(self, *, closing: bool) -> None:
        """Begin no sequence any more; ``closing``: none goes on either, beyond the requests that it has.

        While it is closing, who holds the model may still send requests: each is a sequence of its own.
        """
        if closing:
            self._is_closing = True
            for sequence in list(self._open.values()):
                self._close(sequence)
            self._arm()
        else:
            self._is_draining = True

    # Requests come

    def submit(self, request: InferRequest) -> None:
        """Queue ``request`` in its sequence. Raises INVALID_ARG when it has none, UNAVAILABLE when none may begin."""
        request.queued_ns = monotonic_ns()
        sequence = self._sequence_of(request)
        self._idle.discard(sequence)
        sequence.waiting.append(request)
        self.pending += 1
        if request.sequence_end or self._is_closing:
            self._forget(sequence)
        if sequence.station is None:
            self._backlog.add(sequence, request)
        elif sequence.running is None and len(sequence.waiting) == 1:
            self._make_ready(sequence)
        self._arm()

    def _sequence_of(self, request: InferRequest) -> Sequence:
        """The open sequence that ``request`` belongs to, or begins."""
        if not request.sequence_id:
            if not self._is_iterative:
                raise refusals.without_id(request)
            request.sequence_id = next(number for number in self._ids if number not in self._open)
            request.sequence_start, request.sequence_end = True, False
        self._batches.check(request)
        if request.sequence_start and self._is_draining and not self._is_closing:
            raise refusals.stopping()
        sequence = self._open.get(request.sequence_id)
        if sequence is not None:
            if request.sequence_start:
                logger.warning(
                    "sequence %s for model '%s' has a conflict. The previous sequence did not end before this sequence "
                    "start. Previous sequence will be terminated early.",
                    request.sequence_id,
                    self._name,
                )
            return sequence
        if not request.sequence_start:
            raise refusals.without_start(request)
        if self._absence.refuses:
            raise self._absence.error()
        sequence = self._open[request.sequence_id] = Sequence(request.sequence_id)
        self._free.take(sequence)
        return sequence

    def _make_ready(self, sequence: Sequence) -> None:
        """The first waiting request of ``sequence``, which has a slot, can run."""
        self._batches.prepare(sequence)
        if sequence.station is not None:
            sequence.station.ready[sequence] = None

    # Requests run

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        """Dispatch as much as there are instances for. Runs once a tick, and never hurts when it runs again."""
        self._armed = False
        started = monotonic_ns()
        self._expire(started)
        wake_ns = 0
        for station in self._stations:
            while station.ready and station.executing is None and station.is_available:
                due_ns = self._dispatch(station)
                if due_ns:
                    wake_ns = min(wake_ns or due_ns, due_ns)
                    break
                if monotonic_ns() - started > _TICK_BUDGET_NS:
                    self._arm()
                    break
        self._set_alarm(wake_ns)
        self._notice_idle()

    def _dispatch(self, station: Station) -> int:
        """Run the next batch of ``station``, and return 0; or when to try again, if it had better be fuller."""
        choice = self._strategy.choose(station)
        sequences = [sequence for sequence in choice.sequences if sequence is not None]
        if choice.may_wait and station.may_fill:
            due_ns = min(sequence.waiting[0].queued_ns for sequence in sequences) + self._delay_ns
            if due_ns > monotonic_ns():
                return due_ns
        batch = self._batches.join(choice.sequences)
        for sequence in sequences:
            del station.ready[sequence]
        for request, of in zip(batch.requests, choice.sequences, strict=True):
            if of is not None:
                of.running = request
                of.is_executed = of.is_answered = of.is_rescheduled = False
                self._answers.expected[request] = of
        self.pending -= len(sequences)
        station.run(batch, sequences)
        return 0

    def _go_on(self, sequence: Sequence) -> None:
        """Something has become of the running request of ``sequence``: if that was all, the next follows."""
        if not sequence.is_executed or not (sequence.is_answered or not self._needs_answer):
            return
        sequence.running = None
        if self._is_iterative and not sequence.is_rescheduled:
            self._forget(sequence)  # it was for this one request
        if sequence.station is None:
            return  # its instance has gone
        if sequence.waiting:
            self._make_ready(sequence)
        elif sequence.is_open:
            self._idle.add(sequence)
        else:
            self._release(sequence)
        self._arm()

    # Sequences end

    def _forget(self, sequence: Sequence) -> None:
        """Take no further requests: the id is free for another sequence."""
        if sequence.is_open:
            sequence.is_open = False
            del self._open[sequence.key]

    def _close(self, sequence: Sequence) -> None:
        """End ``sequence`` once the requests that it has are answered."""
        self._forget(sequence)
        self._idle.discard(sequence)
        if sequence.running is None and not sequence.waiting:
            self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        """Let others have the slot of ``sequence``, or its place in the backlog."""
        self._backlog.discard(sequence)
        self._free.give_back(sequence)
        self._fill()

    def _fill(self) -> None:
        """Give free slots to those who have waited longest."""
        while self._backlog and self._free.take(first := self._backlog.first):
            self._backlog.discard(first)
            self._make_ready(first)
            self._arm()

    def _fail_waiting(self, sequence: Sequence, error: ServeError, reason: FailureReason, keep: int = 0) -> None:
        """Fail what waits in ``sequence``, but for its first ``keep`` requests, after which it ends."""
        failed = [sequence.waiting.pop() for _ in range(len(sequence.waiting) - keep)]
        if not keep and sequence.station is not None:
            sequence.station.ready.pop(sequence, None)
        self.pending -= len(failed)
        self._close(sequence)
        for request in reversed(failed):
            self._settler.fail(request, error, reason)

    def discard_cancelled(self) -> None:
        """End sequences that lack a request whose client has gone: what follows it would build on nothing."""
        held = [sequence for station in self._stations for sequence in station.slots if sequence is not None]
        for sequence in [*held, *self._backlog]:
            for index, request in enumerate(sequence.waiting):
                if request.cancelled:
                    self._fail_waiting(sequence, refusals.cancelled(), FailureReason.CANCELED, keep=index)
                    break
        for lane in self._absence.lanes:
            lane.tell_cancelled()
        self._notice_idle()

    def _expire(self, now_ns: int) -> None:
        """End what has been idle, or has waited, for too long."""
        for sequence in self._idle.take_expired(now_ns):
            self._close(sequence)
        for sequence in self._backlog.take_expired(now_ns):
            self._fail_waiting(sequence, refusals.expired(), FailureReason.REJECTED)
        if self._absence.over_ns and self._absence.has_lasted(now_ns):
            for sequence in self._backlog:
                self._fail_waiting(sequence, self._absence.error(), FailureReason.REJECTED)

    def _set_alarm(self, due_ns: int) -> None:
        """Wake up at ``due_ns`` (0: never), or earlier when something expires."""
        absent_ns = self._absence.over_ns if self._backlog else 0
        wake_ns = min(filter(None, (due_ns, self._idle.next_ns, self._backlog.next_deadline_ns, absent_ns)), default=0)
        self._alarm.set(wake_ns, exactly=self._is_closing)

    # What stations tell (slots.House)

    def station_changed(self, station: Station) -> None:
        """An instance has gone, and what it knew of its sequences; or it has come back."""
        if station.is_available and not self._free.holds(station):
            self._free.add(station)
            self._fill()
        elif not station.is_available and self._free.holds(station):
            lost = [sequence for sequence in station.slots if sequence is not None]
            station.ready.clear()
            self._free.drop(station)
            for sequence in lost:
                sequence.station = None
                self._fail_waiting(sequence, refusals.lost(sequence.key, self._name), FailureReason.BACKEND)
        self._absence.look(monotonic_ns())
        self._arm()

    def station_freed(self, executed: Listed[Sequence]) -> None:
        """A batch has been executed."""
        for sequence in executed:
            sequence.is_executed = True
            self._go_on(sequence)
        self._arm()

    def _note_answered(self, sequence: Sequence | None) -> None:
        """A request has its last answer: the one that ``sequence`` was running, or (None) one that nobody runs."""
        if sequence is not None:
            sequence.is_answered = True
            self._go_on(sequence)
        self._notice_idle()

    def _run_again(self, batch: Batch, request: InferRequest) -> None:
        """The model wants ``request`` once more: it runs before what its sequence has besides."""
        sequence = self._answers.expected.pop(request, None)
        if sequence is None:
            return
        self._settler.note_rescheduled(batch, request)
        request.queued_ns = monotonic_ns()
        request.sequence_start = request.sequence_end = False
        sequence.waiting.appendleft(request)
        self.pending += 1
        sequence.is_answered = sequence.is_rescheduled = True
        if sequence.station is None:
            self._fail_waiting(sequence, refusals.lost(sequence.key, self._name), FailureReason.BACKEND)
        elif request.cancelled:
            self._fail_waiting(sequence, refusals.cancelled(), FailureReason.CANCELED)
        self._go_on(sequence)
        self._notice_idle()

    def _notice_idle(self) -> None:
        if self.on_idle is not None and self.is_idle:
            self.on_idle()
