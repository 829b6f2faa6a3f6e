"""The lane of an instance that sees single requests and answers them when it likes (process, or streams).

Batches go in, answers come back on the event loop. The instance can take its next batch as soon as
it has executed the last one, though requests of that may still be answered (decoupled models).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import monotonic_ns
from typing import Any, Protocol

from bident.backends.base import Arrays, RequestInstance
from bident.engine.batch import Batch, gather, gather_apart
from bident.engine.calls import Calls
from bident.engine.merge import Merge
from bident.engine.spin import Spin
from bident.errors import Code, ServeError
from bident.model.config import ModelConfig
from bident.wire.infer import Column, InferRequest

logger = logging.getLogger("bident.engine")


class Owner(Protocol):
    """Who gives a lane its batches, and hears what becomes of them."""

    def lane_changed(self) -> None:
        """A lane has become available, or is so no longer."""

    def lane_freed(self, lane: RequestLane) -> None:
        """``lane`` can take its next batch."""

    def batch_answered(self, batch: Batch, count: int) -> None:
        """The last ``count`` requests of ``batch`` that awaited an answer have it in the batch."""

    def request_answered(
        self,
        batch: Batch,
        request: InferRequest,
        answer: Sequence[Column] | ServeError,
        parameters: dict[str, Any] | None,
        *,
        final: bool,
    ) -> None:
        """One answer has come for one request of ``batch``."""


class RequestLane:
    """One such instance. At most one batch is executing in it at a time."""

    owner: Owner
    """Set by whoever gives it batches, before the first."""
    reschedule: Callable[[Batch, InferRequest], None] | None = None
    """Takes requests that the model wants once more (iterative sequences); None: it may not."""

    def __init__(self, config: ModelConfig, instance: RequestInstance, calls: Calls) -> None:
        """``calls``: through which the instance asks other models."""
        self.name = config.name
        self.merge = Merge(config, lenient=True)
        self.calls = calls
        self._instance = instance
        self._batching = config.max_batch_size > 0
        self._is_ragged = config.ragged is not None
        self._open: dict[_Running, None] = {}
        self.executing: _Running | None = None
        """What the instance is executing now."""
        self._spin = Spin()

    @property
    def is_available(self) -> bool:
        """Whether the instance is there."""
        return self._instance.is_available

    @property
    def is_lost(self) -> bool:
        """Whether it is not there and will not come back."""
        return self._instance.is_lost

    @property
    def reason(self) -> str:
        """Why it is not there."""
        return self._instance.reason

    def is_quick(self, requests: Iterable[InferRequest], rows: int) -> bool:
        """Never: the event loop does not execute such instances itself."""
        return False

    def gains_by_growing(self, rows: int) -> bool:
        """Always taken for true: what another process takes for a batch includes the way there."""
        return True

    async def start(self) -> None:
        """Make the instance available. Raises ServeError."""
        await self._instance.start(self.calls, self._changed)

    def run(self, batch: Batch) -> None:
        """Have ``batch`` executed; the owner hears what becomes of it, perhaps before this returns."""
        batch.start_ns = batch.infer_start_ns = monotonic_ns()
        inputs = (gather_apart if self._is_ragged else gather)(self.merge, batch, self.name)
        if inputs is None:
            self.owner.batch_answered(batch, len(batch.failed))
            self.freed()
            return
        if batch.failed:
            unfit = Batch([], 0)
            unfit.failed, batch.failed = batch.failed, ()
            self.owner.batch_answered(unfit, len(unfit.failed))
        batch.infer_start_ns = monotonic_ns()
        running = _Running(self, batch, batching=self._batching)
        self._open[running] = None
        self.executing = running
        try:
            self._instance.execute_requests(batch.requests, inputs, running)
        except ServeError as error:
            batch.error = error
            batch.infer_end_ns = monotonic_ns()
            self.executing = None
            self.ended(running)
            self.owner.batch_answered(batch, len(batch.requests))
            self.freed()
            return
        if self._spin.is_worth(batch.rows):
            self._spin.wait(batch.rows, partial(self._look, running))

    def _look(self, running: _Running) -> bool:
        """Take in what has come from the instance; whether it has executed ``running``."""
        self._instance.poll()
        return self.executing is not running

    def tell_cancelled(self) -> None:
        """Let the instance know of requests whose clients have gone."""
        for running in self._open:
            indexes = running.newly_cancelled()
            if indexes:
                self._instance.cancel(running, indexes)

    @property
    def is_busy(self) -> bool:
        """Whether it has a batch that it has not executed to the end."""
        return self.executing is not None

    def freed(self) -> None:
        """The instance has executed its batch, or could not."""
        self.owner.lane_freed(self)

    @property
    def is_deserted(self) -> bool:
        """Whether nobody waits any more for what is open here."""
        return all(running.is_deserted for running in self._open)

    async def is_ready(self) -> bool:
        """Whether the instance is available and its model says that it is ready."""
        return await self._instance.is_ready()

    async def close(self) -> None:
        """End the instance."""
        await self._instance.close()

    def ended(self, running: _Running) -> None:
        """Every request of ``running`` has been answered to the end."""
        self._open.pop(running, None)

    def _changed(self) -> None:
        self.owner.lane_changed()


class _Running:
    """A batch in the hands of an instance: what is said of it (see :class:`bident.backends.base.Answers`)."""

    def __init__(self, lane: RequestLane, batch: Batch, *, batching: bool) -> None:
        self._lane = lane
        self._batch = batch
        self._batching = batching
        self._waiting = len(batch.requests)
        self._done_with: set[int] = set()
        """The requests that were answered to the end one by one, and those known to be cancelled."""
        self._logged = ""

    def answered(self, outputs: Arrays, rows: Sequence[int]) -> None:
        """All requests at once: their rows stay together until they are written."""
        batch, lane = self._batch, self._lane
        if self._batching and any(own != request.batch_size for own, request in zip(rows, batch.requests, strict=True)):
            self._answer_apart(outputs, rows)
            return
        try:
            batch.columns = lane.merge.scatter(outputs, batch.rows)
            batch.undeclared = lane.merge.undeclared
        except ServeError as error:
            batch.error = error
            for request in batch.requests:
                self._log(request, error)
        lane.ended(self)
        lane.owner.batch_answered(batch, self._waiting)

    def _answer_apart(self, outputs: Arrays, rows: Sequence[int]) -> None:
        """The model gave a request more or fewer rows than it asked with: that costs only this one its answer."""
        start = 0
        for index, own in enumerate(rows):
            self.replied(index, {name: array[start : start + own] for name, array in outputs.items()})
            start += own

    def replied(
        self,
        index: int,
        outputs: Arrays,
        *,
        error: ServeError | None = None,
        parameters: dict[str, Any] | None = None,
        final: bool = True,
    ) -> None:
        """One request, perhaps not for the last time."""
        batch, lane = self._batch, self._lane
        request = batch.requests[index]
        answer: Sequence[Column] | ServeError
        try:
            answer = error or self._split(outputs, request.batch_size)
        except ServeError as wrong:
            answer = wrong
        if isinstance(answer, ServeError):
            self._log(request, answer)
        if final:
            self._note_done(index)
        lane.owner.request_answered(batch, request, answer, parameters, final=final)

    def rescheduled(self, index: int) -> None:
        """The model wants one request once more."""
        lane = self._lane
        if lane.reschedule is None:
            error = ServeError(
                Code.UNSUPPORTED,
                f"model '{lane.name}' wants a request once more (REQUEST_RELEASE_RESCHEDULE), which only models with "
                "sequence_batching { iterative_sequence: true } may: answer it, or send several responses",
            )
            self.replied(index, {}, error=error)
            return
        self._note_done(index)
        lane.reschedule(self._batch, self._batch.requests[index])

    def _note_done(self, index: int) -> None:
        self._waiting -= 1
        self._done_with.add(index)
        if not self._waiting:
            self._lane.ended(self)

    def _split(self, outputs: Arrays, rows: int) -> Sequence[Column]:
        merge = self._lane.merge
        columns = merge.scatter(outputs, rows) if outputs else ()
        self._batch.undeclared = merge.undeclared if outputs else ()
        return columns

    def _log(self, request: InferRequest, error: ServeError) -> None:
        """What went wrong in the model; other codes are answers that it gives on purpose."""
        if error.code is not Code.INTERNAL or request.cancelled:
            return
        which = f"request '{request.id}'" if request.id else "a request without id"
        # A traceback is long, and all requests of a batch may have the same.
        message = "the same" if error.message == self._logged else error.message
        self._logged = error.message
        logger.error("model '%s', %s: %s", self._lane.name, which, message)

    def executed(self, start_ns: int, end_ns: int) -> None:
        """The instance is free for the next batch."""
        batch, lane = self._batch, self._lane
        # What lies between handing over and the model's start counts as getting the inputs there.
        batch.infer_start_ns = max(batch.infer_start_ns, start_ns)
        batch.infer_end_ns = max(batch.infer_start_ns, end_ns)
        if lane.executing is self:
            lane.executing = None
            lane.freed()

    def newly_cancelled(self) -> list[int]:
        """The requests whose clients have gone since this was last asked."""
        indexes = [
            index
            for index, request in enumerate(self._batch.requests)
            if request.cancelled and index not in self._done_with
        ]
        self._done_with.update(indexes)
        return indexes

    @property
    def is_deserted(self) -> bool:
        """Whether every request has been answered, or cancelled."""
        return len(self._done_with) >= len(self._batch.requests)
