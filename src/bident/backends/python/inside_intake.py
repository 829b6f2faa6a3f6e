"""From a batch of the engine to the requests that ``execute`` is given, with nothing in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bident.backends.base import Arrays
from bident.backends.python.messages import SEQUENCE_END, SEQUENCE_START
from bident.backends.python.tensors import worded
from bident.backends.python.worker.bident_worker.intake import sliced
from bident.backends.python.worker.bident_worker.request import DecoupledRequest, InferenceRequest, InferenceTrace
from bident.backends.python.worker.bident_worker.sender import Batch
from bident.wire.infer import InferRequest


class Job:
    """A batch on its way to the model's thread.

    ``inputs``: the rows of all ``requests``, or of the only one; or a list, of each request its own.
    """

    __slots__ = ("cancelled", "inputs", "number", "requests")

    def __init__(self, number: int, requests: Sequence[InferRequest], inputs: Arrays | list[Arrays]) -> None:
        self.number = number
        self.requests = requests
        self.inputs = inputs
        self.cancelled: list[int] = []
        """Requests whose clients have gone."""


def requests_of(job: Job, link: Any, decoupled: bool) -> tuple[Batch, list[InferenceRequest]]:
    """The batch that ``job`` brings, and its requests. The job loses its inputs, which are theirs now."""
    asked = job.requests
    count = len(asked)
    batch = Batch(link, job.number, count, decoupled)
    # Only now that the batch can be found: who cancels notes it here first, and then looks for the batch.
    batch.cancelled.update(job.cancelled)
    tensors = _tensors(job)
    kind = DecoupledRequest if decoupled else InferenceRequest
    requests: list[InferenceRequest] = []
    for index, told in enumerate(asked):
        request = kind.__new__(kind)
        request._batch = batch
        request._index = index
        request._inputs = tensors[index]
        if told.outputs is None:
            request._outputs = ()
        else:
            request._outputs = told.outputs
            batch.wanted = batch.wanted or [None] * count
            batch.wanted[index] = frozenset(told.outputs)
        if told.id:
            request._request_id = told.id
        if told.parameters or told.timeout_us or told.priority or told.sequence_id or told.sequence_start:
            _tell(request, told)
        if told.trace is not None:
            request._trace = InferenceTrace(told.trace.context)
            request._trace._number = told.trace.id
        requests.append(request)
    return batch, requests


def _tensors(job: Job) -> list[list[Any]]:
    inputs, job.inputs = job.inputs, {}
    asked = job.requests
    if isinstance(inputs, list):
        return [_alone(request, own) for request, own in zip(asked, inputs, strict=True)]
    if len(asked) == 1:
        return [_alone(asked[0], inputs)]
    columns = [(name, *worded(name, array)) for name, array in inputs.items()]
    rows = [request.batch_size for request in asked]
    return sliced(columns, rows[0] if rows.count(rows[0]) == len(rows) else rows, len(rows))


def _alone(request: InferRequest, inputs: Arrays) -> list[Any]:
    """The tensors of a request that shares its arrays with no other."""
    given = request.inputs
    columns = [(name, *worded(name, _own(array, given[name].data))) for name, array in inputs.items()]
    return sliced(columns, 0, 1)[0]


def _own(array: Any, given: Any) -> Any:
    """``array`` for the model to write to, as in a worker: a copy, unless it was made for this very batch."""
    return array if type(given) is list else np.array(array)


def _tell(request: InferenceRequest, told: InferRequest) -> None:
    request._parameters = told.parameters
    request._timeout = told.timeout_us
    request._priority = told.priority
    request._correlation_id = told.sequence_id
    if told.sequence_start:
        request._flags |= SEQUENCE_START
    if told.sequence_end:
        request._flags |= SEQUENCE_END
