"""From a BATCH message to the requests that ``execute`` is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .arrays import unpack
from .frames import Frame
from .link import Link
from .request import DecoupledRequest, InferenceRequest, InferenceTrace
from .sender import Batch
from .tensor import made


def requests_of(frame: Frame, link: Link, decoupled: bool) -> tuple[Batch, list[InferenceRequest]]:
    """The batch that ``frame`` carries, and its requests."""
    header = frame.header
    count = header["count"]
    batch = Batch(link, header["batch"], count, decoupled)
    batch.cancelled.update(header.get("cancelled", ()))
    if "form" in header:
        inputs = _formed(frame, link, count)
    elif "columns" in header:
        columns = ((d[0], d[1], unpack(d, frame.payload, frame.block)) for d in header["columns"])
        inputs = sliced(columns, header["rows"], count)
    else:
        inputs = [
            [made(d[0], unpack(d, frame.payload, frame.block), d[1]) for d in described]
            for described in header["inputs"]
        ]
    ids = header.get("ids")
    outputs = header.get("outputs")
    kind = DecoupledRequest if decoupled else InferenceRequest
    requests: list[InferenceRequest] = []
    for index in range(count):
        request = kind.__new__(kind)
        request._batch = batch
        request._index = index
        request._inputs = inputs[index]
        request._outputs = outputs or ()
        if ids is not None:
            request._request_id = ids[index]
        requests.append(request)
    if outputs is not None:
        batch.wanted = [frozenset(outputs)] * count
    for index, details in header.get("details", ()):
        _tell(requests[index], details)
        if "outputs" in details:
            batch.wanted = batch.wanted or [None] * count
            batch.wanted[index] = None if details["outputs"] is None else frozenset(details["outputs"])
    # What the message brought is held by the requests now, and given back when they go.
    frame.block = None
    return batch, requests


def _formed(frame: Frame, link: Link, count: int) -> list[list[Any]]:
    rows = frame.header["rows"]
    form = link.forms[frame.header["form"]]
    arrays = form.read(frame.payload, count * rows)
    tensors = [
        [made(name, part, word) for part in _parts(array, rows, count)]
        for array, (name, word, _, _, _) in zip(arrays, form.columns)
    ]
    return [list(row) for row in zip(*tensors)]


def _parts(column: Any, rows: int, count: int) -> list[Any]:
    return [column] if count == 1 else list(column.reshape((count, rows, *column.shape[1:])))


def sliced(columns: Iterable[tuple[str, str, Any]], rows: Any, count: int) -> list[list[Any]]:
    """The input tensors of ``count`` requests: each has its ``rows`` of the columns (name, datatype, array).

    ``rows`` is a number if all have as many, else a list.
    """
    tensors: list[list[Any]] = []
    for name, datatype, column in columns:
        if isinstance(rows, int):
            parts = _parts(column, rows, count)
        else:
            parts = []
            start = 0
            for length in rows:
                parts.append(column[start : start + length])
                start += length
        tensors.append([made(name, part, datatype) for part in parts])
    if not tensors:
        return [[] for _ in range(count)]
    return [list(row) for row in zip(*tensors)]


def _tell(request: InferenceRequest, details: dict[str, Any]) -> None:
    if "correlation_id" in details:
        request._correlation_id = details["correlation_id"]
    if "flags" in details:
        request._flags = details["flags"]
    if "timeout" in details:
        request._timeout = details["timeout"]
    if "priority" in details:
        request._priority = details["priority"]
    if "parameters" in details:
        request._parameters = details["parameters"]
    if "trace" in details or "trace_id" in details:
        request._trace = InferenceTrace(details.get("trace"))
        request._trace._number = details.get("trace_id", 0)
    if "outputs" in details:
        request._outputs = details["outputs"] or ()
