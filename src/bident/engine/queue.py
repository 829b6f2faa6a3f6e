"""The requests that wait for one model, by priority level, with their deadlines.

Levels and policies are Triton's ``dynamic_batching`` ones: level 1 is served first; a request past
its level's timeout is rejected, or (``DELAY``) served after the level's punctual ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain

from bident.errors import Code, ServeError
from bident.model.config import DynamicBatching, QueuePolicy
from bident.wire.infer import InferRequest

_NO_POLICY = QueuePolicy()


class _Level:
    __slots__ = ("late", "policy", "punctual")

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self.punctual: deque[InferRequest] = deque()
        self.late: deque[InferRequest] = deque()

    def deadline_ns(self, request: InferRequest) -> int:
        """When ``request`` runs out of time, on the monotonic clock; 0 is never."""
        timeout_us = self.policy.default_timeout_us
        if self.policy.allow_timeout_override and request.timeout_us:
            # Triton lets a request shorten its time in the queue, never stretch it.
            timeout_us = min(request.timeout_us, timeout_us) if timeout_us else request.timeout_us
        return request.queued_ns + timeout_us * 1000 if timeout_us else 0


def _policy(batching: DynamicBatching | None, level: int) -> QueuePolicy:
    if batching is None:
        return _NO_POLICY
    # Without priority levels there is one queue, and Triton gives it the default policy.
    return batching.policy(level) if batching.priority_levels else batching.default_queue_policy


class RequestQueue:
    """First in, first out within a level; lower levels first.

    ``deadlines`` is 0 while no waiting request can expire, which lets the scheduler skip the sweep.
    """

    def __init__(self, batching: DynamicBatching | None) -> None:
        levels = batching.priority_levels if batching else 0
        self._default_level = batching.default_priority_level if batching and levels else 1
        self._levels = [_Level(_policy(batching, level)) for level in range(1, max(1, levels) + 1)]
        self.size = 0
        """How many requests wait."""
        simple = len(self._levels) == 1 and self._levels[0].policy.reject_on_timeout
        self._fifo = self._levels[0].punctual if simple else None
        self.deadlines = 0
        """How many of them will expire if they wait long enough."""
        limits = self._levels[0].policy
        limited = limits.max_queue_size or limits.default_timeout_us or limits.allow_timeout_override
        self._unlimited = None if limited else self._fifo
        """The one queue of a model that limits neither its length nor the time in it."""

    def push(self, request: InferRequest) -> None:
        """Queue ``request`` (its ``queued_ns`` is set). Raises UNAVAILABLE when its level is full."""
        if self._unlimited is not None:
            self._unlimited.append(request)
            self.size += 1
            return
        number = request.priority
        if not 1 <= number <= len(self._levels):
            number = self._default_level
        level = self._levels[number - 1]
        policy = level.policy
        if policy.max_queue_size and len(level.punctual) + len(level.late) >= policy.max_queue_size:
            raise ServeError(
                Code.UNAVAILABLE,
                f"Exceeds maximum queue size: {policy.max_queue_size} requests already wait for model "
                f"'{request.model_name}'; retry later, or raise max_queue_size in its queue policy",
            )
        request.deadline_ns = level.deadline_ns(request)
        if request.deadline_ns:
            self.deadlines += 1
        level.punctual.append(request)
        self.size += 1

    def in_order(self) -> Iterable[InferRequest]:
        """The waiting requests in the order in which they would be served."""
        if self._fifo is not None:
            return self._fifo
        return chain.from_iterable(chain(level.punctual, level.late) for level in self._levels)

    def first(self) -> InferRequest:
        """The request that is served next."""
        return next(iter(self.in_order()))

    def take(self, count: int) -> list[InferRequest]:
        """Take out the next ``count`` requests."""
        self.size -= count
        if self._fifo is not None and not self.deadlines:
            popleft = self._fifo.popleft
            return [popleft()] if count == 1 else [popleft() for _ in range(count)]
        return [self._pop() for _ in range(count)]

    def _pop(self) -> InferRequest:
        for level in self._levels:
            queue = level.punctual or level.late
            if queue:
                request = queue.popleft()
                if request.deadline_ns and queue is level.punctual:
                    self.deadlines -= 1
                return request
        raise IndexError("the queue is empty")

    def expire(self, now_ns: int) -> list[InferRequest]:
        """Apply the timeouts: requests to reject are taken out and returned, delayed ones step back."""
        rejected: list[InferRequest] = []
        for level in self._levels:
            if not any(request.deadline_ns and request.deadline_ns <= now_ns for request in level.punctual):
                continue
            waiting = list(level.punctual)
            level.punctual.clear()
            for request in waiting:
                if not request.deadline_ns or request.deadline_ns > now_ns:
                    level.punctual.append(request)
                    continue
                self.deadlines -= 1
                if level.policy.reject_on_timeout:
                    self.size -= 1
                    rejected.append(request)
                else:
                    level.late.append(request)
        return rejected

    def next_deadline_ns(self) -> int:
        """The earliest deadline among the punctual requests; 0 if none has one."""
        deadlines = [r.deadline_ns for level in self._levels for r in level.punctual if r.deadline_ns]
        return min(deadlines, default=0)

    def drop_cancelled(self) -> list[InferRequest]:
        """Take out and return the requests whose client has gone."""
        dropped: list[InferRequest] = []
        for level in self._levels:
            for queue in (level.punctual, level.late):
                if not any(request.cancelled for request in queue):
                    continue
                waiting = list(queue)
                queue.clear()
                for request in waiting:
                    (dropped if request.cancelled else queue).append(request)
                    if request.cancelled and request.deadline_ns and queue is level.punctual:
                        self.deadlines -= 1
        self.size -= len(dropped)
        return dropped
