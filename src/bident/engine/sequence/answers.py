"""What becomes of the answers to sequences' requests: states stay here, the rest goes to the clients."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Listed
from typing import Any

from bident.engine.batch import Batch
from bident.engine.sequence.batches import Batches, Filler
from bident.engine.sequence.slots import Sequence
from bident.engine.settle import Settler
from bident.errors import ServeError
from bident.wire.infer import Column, InferRequest


class Answers:
    """Hears the answers of one model version (``slots.Hearer``)."""

    def __init__(self, settler: Settler, batches: Batches, noted: Callable[[Sequence | None], None]) -> None:
        """``noted`` is told of each request that has its last answer: whose it was, None if nobody runs it."""
        self.expected: dict[InferRequest, Sequence] = {}
        """The requests that the model has, and whose they are."""
        self._settler = settler
        self._batches = batches
        self._noted = noted

    def batch_answered(self, batch: Batch) -> None:
        """Whatever of ``batch`` awaited an answer has it."""
        if batch.apart is not None:
            for request, columns in zip(batch.requests, batch.apart, strict=True):
                self.request_answered(batch, request, columns, None, final=True)
            batch.requests = []
        if batch.failed:
            batch.failed = [(request, error) for request, error in batch.failed if request in self.expected]
        if batch.error is not None:
            batch.requests = [request for request in batch.requests if request in self.expected]
        else:
            for row, request in enumerate(batch.requests):
                self._keep(request, batch.columns, row)
            batch.columns = self._batches.shown(batch.columns)
        self._settler.settle(batch)
        for request in [*batch.requests, *(request for request, _ in batch.failed)]:
            self._note(request)

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
        if isinstance(request, Filler):
            return
        if not isinstance(answer, ServeError):
            self._keep(request, answer, None)
            answer = self._batches.shown(answer)
        self._settler.answer(batch, request, answer, parameters, final=final)
        if final:
            self._note(request)

    def _keep(self, request: InferRequest, columns: Listed[Column], row: int | None) -> None:
        sequence = self.expected.get(request)
        if sequence is not None and self._batches.have_states:
            self._batches.keep(sequence, request, columns, row)

    def _note(self, request: InferRequest) -> None:
        sequence = self.expected.pop(request, None)
        self._noted(sequence if sequence is not None and sequence.running is request else None)
