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

    def settle(self, batch: Batch) -> None:
        """Answer the batch's requests, each with its rows of the columns."""
        if batch.failed or batch.undeclared or len(batch.columns) != self._declared:
            self._settle_oddities(batch)
        if batch.error is not None:
            return
        start = answered = rows = queued_ns = received_ns = 0
        for request in batch.requests:
            stop = start + request.batch_size if self._batching else -1
            columns = batch.columns
            if request.outputs is not None:
                try:
                    columns = wanted_columns(request, columns, batch.undeclared)
                except ServeError as error:
                    self.fail(request, error, FailureReason.BACKEND)
                    start = stop
                    continue
            response = InferResponse(self._name, self._version, request.id, columns, start, stop)
            if request.spent is not None:
                _note_spent(batch, request, request.spent)
            outcome = self.reply(request, response)
            start = stop
            if outcome is _FAILED:
                self.note_failure(request, FailureReason.OTHER)
            elif outcome is _LATER:
                response.settled = partial(self._settle_late, batch, request)
            else:
                answered += 1
                rows += request.batch_size
                queued_ns += request.queued_ns
                received_ns += request.received_ns
        if answered:
            self._count(batch, answered, rows, queued_ns, received_ns)

    def _settle_oddities(self, batch: Batch) -> None:
        """What is not as it should be in most batches: failures, and outputs too many or too few."""
        for request, error in batch.failed:
            self.fail(request, error, FailureReason.OTHER)
        if batch.error is not None:
            for request in batch.requests:
                self.fail(request, batch.error, FailureReason.BACKEND)
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
            self._refuse(request, answer, final=final)
            return
        columns = answer
        if batch.undeclared or (len(columns) != self._declared and not self._decoupled):
            self._strays.look(columns, batch.undeclared, (request,))
        if request.outputs is not None and (columns or not self._decoupled):
            try:
                columns = wanted_columns(request, columns, batch.undeclared)
            except ServeError as error:
                self._refuse(request, error, final=final)
                return
        response = InferResponse(self._name, self._version, request.id, columns, 0, -1)
        response.parameters = parameters
        response.final = final
        if final and request.spent is not None:
            _note_spent(batch, request, request.spent)
        outcome = self.reply(request, response)
        if not final:
            return
        if outcome is _FAILED:
            self.note_failure(request, FailureReason.OTHER)
        elif outcome is _LATER:
            response.settled = partial(self._settle_late, batch, request)
        else:
            self._count(batch, 1, request.batch_size, request.queued_ns, request.received_ns)

    def _refuse(self, request: InferRequest, error: ServeError, *, final: bool) -> None:
        """Give ``request`` an error that the model made; a stream may go on after it."""
        if final:
            self.fail(request, error, FailureReason.BACKEND)
            return
        response = InferResponse.failure(request, error)
        response.final = False
        self.reply(request, response)

    def fail(self, request: InferRequest, error: ServeError, reason: FailureReason) -> None:
        """Answer ``request`` with ``error``, for good."""
        self.note_failure(request, reason)
        self.reply(request, InferResponse.failure(request, error))

    def _settle_late(self, batch: Batch, request: InferRequest, answered: bool) -> None:
        """Add up the figures of one request of ``batch`` whose answer has been written later, or could not be."""
        if answered:
            self._count(batch, 1, request.batch_size, request.queued_ns, request.received_ns)
        else:
            self.note_failure(request, FailureReason.OTHER)

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
    )
