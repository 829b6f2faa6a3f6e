"""One model version's queue: decides which requests run together, when, and on which instance.

Tick batching: ``submit`` only queues. At the end of the event loop's tick everything that is queued
becomes as few batches as the policy allows. While all instances are busy, requests pile up and
become the next batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from time import monotonic_ns
from typing import Any

from bident.engine.absence import Absence
from bident.engine.batch import Batch
from bident.engine.batching import BatchPolicy, Plan
from bident.engine.clients import Clients
from bident.engine.lane import Lane
from bident.engine.queue import RequestQueue
from bident.engine.request_lane import RequestLane
from bident.engine.settle import Settler
from bident.engine.stats import FailureReason, ModelStats
from bident.errors import Code, ServeError
from bident.model.config import ModelConfig
from bident.wire.infer import Column, InferRequest

_COMPANY_WINDOW_NS = 50_000_000
"""How long the number of requests seen together is taken as a sign of how many will come again."""

_TICK_BUDGET_NS = 2_000_000
"""How long inline executions may keep the loop before other connections get their turn."""


class Scheduler:
    """Owns the queue and the idle lanes of one model version. Lives on the event loop."""

    def __init__(
        self,
        config: ModelConfig,
        version: str,
        lanes: Sequence[Lane | RequestLane],
        stats: ModelStats,
        loop: asyncio.AbstractEventLoop,
        clients: Clients,
    ) -> None:
        self._name = config.name
        self._settler = Settler(config, version, stats)
        self._policy = BatchPolicy(config)
        self._queue = RequestQueue(config.dynamic_batching)
        self._absence = Absence([lane for lane in lanes if isinstance(lane, RequestLane)])
        self._idle: list[Lane | RequestLane] = [lane for lane in lanes if not isinstance(lane, RequestLane)]
        self._running = 0
        self._stats = stats
        self._loop = loop
        self._clients = clients
        self._armed = False
        self._timer: asyncio.TimerHandle | None = None
        self._company = _Company()
        self._in_order: deque[Batch] | None = (
            deque() if config.dynamic_batching and config.dynamic_batching.preserve_ordering else None
        )
        self.on_idle: Callable[[], None] | None = None
        """Called whenever nothing is queued or running any more."""
        for lane in self._absence.lanes:
            lane.owner = self
        self._absence.look(monotonic_ns())

    has_sequences = False
    """There are none."""

    def drain(self, *, closing: bool) -> None:
        """Nothing ends here but by itself."""

    @property
    def pending(self) -> int:
        """Requests accepted and not yet executing (``nv_inference_pending_request_count``)."""
        return self._queue.size

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued or running."""
        return not self._queue.size and not self._running

    def submit(self, request: InferRequest) -> None:
        """Queue ``request``. Raises UNAVAILABLE when its queue is full.

        With a single client connected nothing can join the request, so if it is quick it is not
        queued but answered before this returns.
        """
        request.queued_ns = monotonic_ns()
        queue = self._queue
        if self._clients.count == 1 and not queue.size and self._idle and not self._in_order:
            lane = self._idle[-1]
            if lane.is_quick((request,), request.batch_size) and isinstance(lane, Lane):
                self._run_inline(lane, Batch([request], request.batch_size))
                return
        if self._absence.refuses:
            self._refuse(request, self._absence.error())
        try:
            queue.push(request)
        except ServeError:
            self._push_again(request)
        if not self._armed:
            self._arm()

    def _push_again(self, request: InferRequest) -> None:
        """The queue is full: dispatch before the tick's end, so that nobody is refused while an instance is idle."""
        self._tick()
        try:
            self._queue.push(request)
        except ServeError as error:
            self._refuse(request, error)

    def _refuse(self, request: InferRequest, error: ServeError) -> None:
        self._stats.record_failure(FailureReason.REJECTED, request.queued_ns - request.received_ns)
        raise error

    def discard_cancelled(self) -> None:
        """Take requests whose client has gone out of the queue; let the model know of those that are running."""
        for request in self._queue.drop_cancelled():
            error = ServeError(Code.CANCELLED, "request cancelled by the client")
            self._settler.fail(request, error, FailureReason.CANCELED)
        for lane in self._absence.lanes:
            lane.tell_cancelled()
        self._notice_idle()

    def _arm(self) -> None:
        self._armed = True
        self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        """Dispatch as much as there are instances for. Runs once a tick, and never hurts when it runs again."""
        self._armed = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._queue.deadlines:
            self._reject_expired()
        if self._absence.over_ns and self._absence.has_lasted(monotonic_ns()):
            self._reject_orphans()
        started = monotonic_ns()
        while self._queue.size and self._idle:
            if not self._dispatch():
                break
            if self._queue.size and monotonic_ns() - started > _TICK_BUDGET_NS:
                self._arm()
                break
        if self._queue.size and not self._armed:
            self._set_timer()
        self._notice_idle()

    def _dispatch(self) -> bool:
        """Run the next batch; False when it is better to wait for more requests first."""
        queue = self._queue
        plan = self._policy.plan(queue.in_order())
        if self._policy.delay_ns and self._should_wait(plan):
            return False
        batch = Batch(queue.take(plan.take), plan.rows)
        lane = self._idle[-1]
        if self._in_order is not None:
            self._in_order.append(batch)
        if isinstance(lane, RequestLane):
            self._idle.pop()
            self._running += plan.take
            lane.run(batch)
        elif lane.is_quick(batch.requests, batch.rows):
            self._run_inline(lane, batch)
        else:
            self._idle.pop()
            self._running += plan.take
            lane.run_on_thread(batch, partial(self._finish, lane, plan.take))
        return True

    def _run_inline(self, lane: Lane, batch: Batch) -> None:
        """Execute and answer here and now; what no client waits for comes last."""
        lane.execute(batch)
        self._settle(batch)
        lane.learn(batch)

    def _should_wait(self, plan: Plan) -> bool:
        """Whether the declared delay is worth spending on ``plan``.

        It is not once it has passed, nor when nobody else seems to be sending, nor when the batch
        is so quick that running it now costs less than the wait, nor when the model is measured to
        need as long for each row of a larger batch.
        """
        if self._clients.count == 1:
            return False
        now = monotonic_ns()
        outstanding = self._queue.size + self._running
        self._company.see(outstanding, now)
        if not plan.could_grow or outstanding >= self._company.expected:
            return False
        if now - self._queue.first().queued_ns >= self._policy.delay_ns:
            return False
        lane = self._idle[-1]
        return lane.gains_by_growing(plan.rows) and not lane.is_quick(
            islice(self._queue.in_order(), plan.take), plan.rows
        )

    def _finish(self, lane: Lane, count: int, batch: Batch) -> None:
        """Back on the loop after a thread ran ``batch``, which began with ``count`` requests."""
        self._idle.append(lane)
        self._running -= count
        self._settle(batch)
        if self._queue.size and not self._armed:
            self._arm()
        self._notice_idle()

    def _settle(self, batch: Batch) -> None:
        """Answer the requests of ``batch``; for a model that keeps their order, once those before it are answered."""
        in_order = self._in_order
        if not in_order or batch not in in_order:
            self._settler.settle(batch)
            return
        batch.done = True
        while in_order and in_order[0].done:
            first = in_order.popleft()
            self._settler.settle(first)
            for request, answer, parameters in first.replies:
                self._settler.answer(first, request, answer, parameters, final=True)

    # What lanes of RequestInstances tell (request_lane.Owner)

    def lane_changed(self) -> None:
        """An instance has gone, or has come back: so do the requests that wait for one."""
        self._idle = [lane for lane in self._idle if not isinstance(lane, RequestLane) or lane.is_available]
        for lane in self._absence.lanes:
            if lane.is_available and not lane.is_busy and lane not in self._idle:
                self._idle.append(lane)
        self._absence.look(monotonic_ns())
        if self._queue.size and not self._armed:
            self._arm()

    def lane_freed(self, lane: RequestLane) -> None:
        """The instance can take its next batch."""
        if lane.is_available and lane not in self._idle:
            self._idle.append(lane)
        if self._queue.size and not self._armed:
            self._arm()

    def batch_answered(self, batch: Batch, count: int) -> None:
        """Whatever of ``batch`` awaited an answer has it."""
        self._running -= count
        self._settle(batch)
        self._notice_idle()

    def request_answered(
        self,
        batch: Batch,
        request: InferRequest,
        answer: Sequence[Column] | ServeError,
        parameters: dict[str, Any] | None,
        *,
        final: bool,
    ) -> None:
        """One answer to one request; a model that keeps the order of requests keeps it until the batch is complete."""
        if self._in_order and final and batch in self._in_order:
            batch.replies.append((request, answer, parameters))
            if len(batch.replies) == len(batch.requests):
                batch.requests = []
                self._settle(batch)
        else:
            self._settler.answer(batch, request, answer, parameters, final=final)
        if final:
            self._running -= 1
            self._notice_idle()

    def _reject_expired(self) -> None:
        for request in self._queue.expire(monotonic_ns()):
            error = ServeError(
                Code.UNAVAILABLE,
                f"Request timeout expired: it waited longer than its queue policy allows for model '{self._name}'",
            )
            self._settler.fail(request, error, FailureReason.REJECTED)

    def _reject_orphans(self) -> None:
        """No instance is there, and none will come in time."""
        orphans = self._queue.take(self._queue.size)
        if not orphans:
            return
        error = self._absence.error()
        for request in orphans:
            self._settler.fail(request, error, FailureReason.REJECTED)

    def _set_timer(self) -> None:
        """Wake up when the batch that waits for company has waited enough, or a deadline passes."""
        wake_ns = self._queue.next_deadline_ns() if self._queue.deadlines else 0
        if self._absence.over_ns:
            wake_ns = min(wake_ns, self._absence.over_ns) if wake_ns else self._absence.over_ns
        if self._idle:
            due_ns = self._queue.first().queued_ns + self._policy.delay_ns
            wake_ns = min(wake_ns, due_ns) if wake_ns else due_ns
        if wake_ns:
            delay_s = max(0, wake_ns - monotonic_ns()) / 1e9
            self._timer = self._loop.call_later(delay_s, self._tick)

    def _notice_idle(self) -> None:
        if self.on_idle is not None and self.is_idle:
            self.on_idle()


class _Company:
    """How many requests have lately been waiting or running at once.

    As many are expected to come again: clients that wait for an answer before they ask again send
    together what was answered together. A lone client is never expected to have company.
    """

    __slots__ = ("_current", "_previous", "_since_ns")

    def __init__(self) -> None:
        self._current = 0
        self._previous = 0
        self._since_ns = 0

    @property
    def expected(self) -> int:
        """The most seen at once in the last two windows."""
        return max(self._current, self._previous)

    def see(self, outstanding: int, now_ns: int) -> None:
        """Note that ``outstanding`` requests are waiting or running now."""
        age = now_ns - self._since_ns
        if age > _COMPANY_WINDOW_NS:
            self._previous = self._current if age < 2 * _COMPANY_WINDOW_NS else 0
            self._current = 0
            self._since_ns = now_ns
        self._current = max(self._current, outstanding)
