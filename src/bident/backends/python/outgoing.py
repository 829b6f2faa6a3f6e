"""What the server sends, as headers and parcels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import orjson
from numpy.typing import NDArray

from bident.backends.python.messages import Arrays, Batch, Request
from bident.backends.python.tensors import worded
from bident.backends.python.worker.bident_worker.arrays import Parcel
from bident.errors import Code, ServeError

CODES = [
    Code.UNKNOWN,
    Code.INTERNAL,
    Code.NOT_FOUND,
    Code.INVALID_ARG,
    Code.UNAVAILABLE,
    Code.UNSUPPORTED,
    Code.ALREADY_EXISTS,
    Code.CANCELLED,
]
"""Triton's error codes by their numbers, which is how they cross."""


def batch(batch: Batch) -> tuple[dict[str, Any], Parcel]:
    """A BATCH message."""
    requests = batch.requests
    header: dict[str, Any] = {"batch": batch.id, "count": len(requests)}
    parcel = Parcel()
    try:
        if batch.columns is not None:
            rows = [request.rows for request in requests]
            header["columns"] = [_whole(name, array, parcel) for name, array in batch.columns.items()]
            header["rows"] = rows[0] if rows.count(rows[0]) == len(rows) else rows
        elif not _join(requests, header, parcel):
            header["inputs"] = [
                [_whole(name, array, parcel) for name, array in (request.inputs or {}).items()] for request in requests
            ]
    except (TypeError, ValueError) as error:
        raise ServeError(Code.INVALID_ARG, str(error)) from error
    _tell(requests, header)
    return header, parcel


def infer_answer(
    call: int, outputs: Arrays | None, error: ServeError | None, parameters: dict[str, Any] | None, final: bool
) -> tuple[dict[str, Any], Parcel]:
    """An INFER_ANSWER message."""
    header: dict[str, Any] = {"call": call, "final": final}
    parcel = Parcel()
    if parameters:
        header["parameters"] = parameters
    if error is not None:
        header["error"] = [CODES.index(error.code), error.message]
    elif outputs is not None:
        header["outputs"] = [_whole(name, array, parcel) for name, array in outputs.items()]
    return header, parcel


def encoded(header: dict[str, Any]) -> bytes:
    """``header`` as JSON."""
    try:
        return orjson.dumps(header)
    except orjson.JSONEncodeError:
        # Text that is no Unicode, or a number beyond 64 bits: Python's own encoder takes both.
        return json.dumps(header, ensure_ascii=False).encode("utf-8", "replace")


def _whole(name: str, array: NDArray[Any], parcel: Parcel) -> list[Any]:
    word, array = worded(name, array)
    return parcel.add(name, word, (array,), array.shape)


def _join(requests: Sequence[Request], header: dict[str, Any], parcel: Parcel) -> bool:
    """Lay the inputs of ``requests`` one behind the other, if they are alike but for the first dimension."""
    first = requests[0].inputs or {}
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in first}
    kinds: dict[str, Any] = {}
    rows: list[int] = []
    if not columns:
        return False
    for request in requests:
        inputs = request.inputs or {}
        if len(inputs) != len(columns):
            return False
        count = -1
        for name, array in inputs.items():
            column = columns.get(name)
            shape = array.shape
            if column is None or not shape or (count != -1 and shape[0] != count):
                return False
            kind = (array.dtype, shape[1:])
            if kinds.setdefault(name, kind) != kind:
                return False
            count = shape[0]
            column.append(array)
        rows.append(count)
    header["columns"] = [_joined(name, column, sum(rows), parcel) for name, column in columns.items()]
    header["rows"] = rows[0] if rows.count(rows[0]) == len(rows) else rows
    return True


def _joined(name: str, column: list[NDArray[Any]], rows: int, parcel: Parcel) -> list[Any]:
    word, first = worded(name, column[0])
    arrays = column if first is column[0] else [worded(name, array)[1] for array in column]
    return parcel.add(name, word, arrays, (rows, *first.shape[1:]))


def _tell(requests: Sequence[Request], header: dict[str, Any]) -> None:
    """Everything about ``requests`` but their inputs; what most have alike is said once."""
    ids = [request.id for request in requests]
    if any(ids):
        header["ids"] = ids
    common = requests[0].outputs
    if common is not None:
        header["outputs"] = list(common)
    details: list[list[Any]] = []
    for index, request in enumerate(requests):
        said = _details(request)
        if request.outputs is not common and request.outputs != common:
            said["outputs"] = None if request.outputs is None else list(request.outputs)
        if said:
            details.append([index, said])
    if details:
        header["details"] = details


def _details(request: Request) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if request.correlation_id != 0:
        said["correlation_id"] = request.correlation_id
    if request.flags:
        said["flags"] = request.flags
    if request.timeout_us:
        said["timeout"] = request.timeout_us
    if request.priority:
        said["priority"] = request.priority
    if request.parameters:
        said["parameters"] = request.parameters
    if request.trace is not None:
        said["trace"] = request.trace
    if request.trace_id:
        said["trace_id"] = request.trace_id
    return said
