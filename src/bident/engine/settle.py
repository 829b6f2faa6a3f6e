"""Answers requests and adds up the figures: what follows an execution."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic_ns
from typing import Any

from bident.engine.batch import Batch
from bident.engine.merge import wanted_columns
from bident.engine.stats import FailureReason, ModelStats
from bident.engine.strays import Strays
from bident.engine.streams import Streams
from bident.errors import Code, ServeError
from bident.model.config import ModelConfig
from bident.wire.infer import Column, InferRequest, InferResponse, Outcome, Spent

logger = logging.getLogger("bident.engine")

_FAILED = Outcome.FAILED
_LATER = Outcome.LATER


class Settler:
    """Speaks for one model version."""

    def __init__(self, config: ModelConfig, version: str, stats: ModelStats) -> None:
        self._name = config.name
        self._version = version
        self._strays = Strays(config)
        self._declared = len(config.outputs)
        self._batching = config.max_batch_size > 0
        self._decoupled = config.decoupled
        self._stats = stats
        self._streams = Streams(stats)

    def settle(self, batch: Batch) -> None:
        """Answer the batch's requests, each with its rows of the columns."""
        if batch.failed or batch.undeclared or len(batch.columns) != self._declared:
            self._settle_oddities(batch)
        if batch.error is not None:
            return
        unanswered = self._answer_all(batch)
        if self._stats.summaries is not None:
            self._measure(batch, [request for request in batch.requests if request not in unanswered])

    def _answer_all(self, batch: Batch) -> list[InferRequest]:
        """Answer all requests of ``batch`` and add them up; returns those that have no answer, or not yet."""
        unanswered: list[InferRequest] = []
        start = answered = rows = queued_ns = received_ns = 0
        for request in batch.requests:
            stop = start + request.batch_size if self._batching else -1
            columns = batch.columns
            if request.outputs is not None:
                try:
                    columns = wanted_columns(request, columns, batch.undeclared)
                except ServeError as error:
                    self._fail_in(batch, request, error)
                    unanswered.append(request)
                    start = stop
                    continue
            response = InferResponse(self._name, self._version, request.id, columns, start, stop)
            if request.spent is not None:
                _note_spent(batch, request, request.spent)
            outcome = self.reply(request, response)
            start = stop
            if outcome is _FAILED:
                self.note_failure(request, FailureReason.OTHER)
                unanswered.append(request)
            elif outcome is _LATER:
                response.settled = partial(self._settle_late, batch, request)
                unanswered.append(request)
            else:
                answered += 1
                rows += request.batch_size
                queued_ns += request.queued_ns
                received_ns += request.received_ns
        if answered:
            self._count(batch, answered, rows, queued_ns, received_ns)
        return unanswered

    def _settle_oddities(self, batch: Batch) -> None:
        """What is not as it should be in most batches: failures, and outputs too many or too few."""
        for request, error in batch.failed:
            self.fail(request, error, FailureReason.OTHER)
        if batch.error is not None:
            for request in batch.requests:
                self._fail_in(batch, request, batch.error)
        elif batch.apart is not None:
            requests, batch.requests = batch.requests, []
            for request, columns in zip(requests, batch.apart, strict=True):
                self.answer(batch, request, columns, None, final=True)
        elif batch.requests:
            self._strays.look(batch.columns, batch.undeclared, batch.requests)

    def answer(
        self,
        batch: Batch,
        request: InferRequest,
        answer: Sequence[Column] | ServeError,
        parameters: dict[str, Any] | None,
        *,
        final: bool,
    ) -> None:
        """Give ``request`` of ``batch`` one answer of its own: columns, none at the end of a stream, or an error."""
        if isinstance(answer, ServeError):
            self._refuse(batch, request, answer, final=final)
            return
        columns = answer
        if batch.undeclared or (len(columns) != self._declared and not self._decoupled):
            self._strays.look(columns, batch.undeclared, (request,))
        if request.outputs is not None and (columns or not self._decoupled):
            try:
                columns = wanted_columns(request, columns, batch.undeclared)
            except ServeError as error:
                self._refuse(batch, request, error, final=final)
                return
        response = InferResponse(self._name, self._version, request.id, columns, 0, -1)
        response.parameters = parameters
        response.final = final
        if final and request.spent is not None:
            _note_spent(batch, request, request.spent)
        outcome = self._reply_in(batch, request, response)
        if not final:
            return
        if outcome is _FAILED:
            self.note_failure(request, FailureReason.OTHER)
        elif outcome is _LATER:
            response.settled = partial(self._settle_late, batch, request)
        else:
            self._count_one(batch, request)

    def note_rescheduled(self, batch: Batch, request: InferRequest) -> None:
        """Add one run of ``request`` to the figures, after which it comes once more: to Triton each is a success."""
        self._count_one(batch, request)

    def _refuse(self, batch: Batch, request: InferRequest, error: ServeError, *, final: bool) -> None:
        """Give ``request`` an error that the model made; a stream may go on after it."""
        if final:
            self._fail_in(batch, request, error)
            return
        response = InferResponse.failure(request, error)
        response.final = False
        self._reply_in(batch, request, response)

    def _fail_in(self, batch: Batch, request: InferRequest, error: ServeError) -> None:
        """Answer ``request`` with an ``error`` that came of running ``batch``."""
        if not batch.counted:
            self._count_execution(batch)
        if request.spent is not None:
            _note_spent(batch, request, request.spent)
        self.note_failure(request, FailureReason.BACKEND)
        self._reply_in(batch, request, InferResponse.failure(request, error))

    def _reply_in(self, batch: Batch, request: InferRequest, response: InferResponse) -> Outcome:
        """Have ``response`` written, and note what it took if it is one of a stream."""
        if not self._decoupled:
            return self.reply(request, response)
        return self._streams.reply(batch, request, response, self.reply)

    def fail(self, request: InferRequest, error: ServeError, reason: FailureReason) -> None:
        """Answer ``request`` with ``error``, for good."""
        self.note_failure(request, reason)
        self.reply(request, InferResponse.failure(request, error))

    def _settle_late(self, batch: Batch, request: InferRequest, answered: bool) -> None:
        """Add up the figures of one request of ``batch`` whose answer has been written later, or could not be."""
        if answered:
            self._count_one(batch, request)
        else:
            self.note_failure(request, FailureReason.OTHER)
        if request.trace is not None:
            request.trace.end()

    def _count_one(self, batch: Batch, request: InferRequest) -> None:
        """Add ``request`` of ``batch``, which has been answered to its end."""
        self._count(batch, 1, request.batch_size, request.queued_ns, request.received_ns)
        if self._stats.summaries is not None:
            self._measure(batch, (request,))

    def _count_execution(self, batch: Batch) -> None:
        """Add the run of ``batch``, of which nothing has been answered with a result."""
        infer_end_ns = batch.infer_end_ns or monotonic_ns()
        input_ns, infer_ns = batch.infer_start_ns - batch.start_ns, infer_end_ns - batch.infer_start_ns
        self._stats.record_execution(batch.rows, input_ns, infer_ns, monotonic_ns() - infer_end_ns)
        batch.counted = True

    def _measure(self, batch: Batch, requests: Sequence[InferRequest]) -> None:
        """Add the times of ``requests`` of ``batch`` to the summaries, which are there."""
        assert self._stats.summaries is not None
        end_ns = monotonic_ns()
        infer_end_ns = batch.infer_end_ns or end_ns
        self._stats.summaries.record(
            [end_ns - request.received_ns for request in requests],
            [batch.start_ns - request.queued_ns for request in requests],
            batch.infer_start_ns - batch.start_ns,
            infer_end_ns - batch.infer_start_ns,
            end_ns - infer_end_ns,
        )

    def _count(self, batch: Batch, requests: int, rows: int, queued_ns: int, received_ns: int) -> None:
        """Add ``requests`` of ``batch``, with ``rows`` in all, that have been answered by now."""
        end_ns = monotonic_ns()
        # The first answers of a stream may be complete before the model has returned.
        infer_end_ns = batch.infer_end_ns or end_ns
        self._stats.record_batch(
            requests,
            rows,
            requests * batch.start_ns - queued_ns,
            requests * end_ns - received_ns,
            batch.infer_start_ns - batch.start_ns,
            infer_end_ns - batch.infer_start_ns,
            end_ns - infer_end_ns,
            executed_rows=0 if batch.counted else batch.rows,
        )
        batch.counted = True

    def note_failure(self, request: InferRequest, reason: FailureReason) -> None:
        """Add ``request`` to the figures as one that got no result."""
        self._stats.record_failure(reason, monotonic_ns() - request.received_ns)

    def reply(self, request: InferRequest, response: InferResponse) -> Outcome:
        """Have ``response`` written; FAILED, and a line in the log, if that raises."""
        try:
            reply = request.reply
            return reply(response)
        except RecursionError:
            # Here the stack has no room, not even for the log. Whoever waits is told from an empty one.
            asyncio.get_running_loop().call_soon(self._reply_anew, reply, request, response.final)
            return _FAILED
        except Exception:
            # One answer that cannot be written must not cost its batch companions theirs.
            logger.exception("an answer of model '%s' could not be delivered", self._name)
            return _FAILED

    def _reply_anew(self, reply: Callable[[InferResponse], Outcome], request: InferRequest, final: bool) -> None:
        """Say that the answer was lost on its way, which led too deep."""
        text = f"an answer of model '{self._name}' could not be delivered: too many calls lay between it and the client"
        logger.error("%s", text)
        response = InferResponse.failure(request, ServeError(Code.INTERNAL, text))
        response.final = final
        try:
            reply(response)
        except Exception:
            logger.exception("that could not be said either")


def _note_spent(batch: Batch, request: InferRequest, spent: Spent) -> None:
    """Tell who asked on behalf of another request where the time of this one went."""
    end_ns = monotonic_ns()
    infer_end_ns = batch.infer_end_ns or end_ns
    spent.add(
        batch.start_ns - request.queued_ns,
        batch.infer_start_ns - batch.start_ns,
        infer_end_ns - batch.infer_start_ns,
        end_ns - infer_end_ns,
        batch.rows,
    )
