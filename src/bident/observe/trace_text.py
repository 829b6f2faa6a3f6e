"""Traces as Triton writes them to a file: JSON objects, one for each thing that is known of one of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bident.wire.trace import Moment, TensorSeen, Trace

_PIECE = 1 << 16
"""So many elements become text at a time: until it is joined, that of each takes many times the element's space."""


def text(root: Trace) -> str:
    """The objects of ``root`` and its family, with commas between, each trace's in the order of what happened."""
    return ",".join(entry for trace in root.family for entry in _entries(trace))


def _entries(trace: Trace) -> Iterator[str]:
    for index, event in enumerate(trace.events):
        if index == trace.begun_at:
            yield _model(trace)
        yield _moment(trace.id, event) if isinstance(event, Moment) else _tensor(trace.id, event)
    if trace.begun_at >= len(trace.events):
        yield _model(trace)


def _model(trace: Trace) -> str:
    said: dict[str, Any] = {"id": trace.id, "model_name": trace.model_name, "model_version": trace.model_version}
    if trace.request_id:
        said["request_id"] = trace.request_id
    if trace.parent_id:
        said["parent_id"] = trace.parent_id
    return _json(said)


def _moment(number: int, moment: Moment) -> str:
    return f'{{"id":{number},"timestamps":[{{"name":"{moment.name}","ns":{moment.ns}}}]}}'


def _tensor(number: int, seen: TensorSeen) -> str:
    said = {
        "name": seen.name,
        "data": _elements(seen),
        "shape": ",".join(map(str, seen.shape)),
        "dtype": seen.datatype,
    }
    return _json({"id": number, "activity": seen.activity, "tensor": said})


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def _elements(seen: TensorSeen) -> str:
    """The elements with commas between: strings in quotes, truth as 1 and 0, numbers as short as they can be."""
    elements = seen.data if isinstance(seen.data, list) else seen.data.reshape(-1)
    if isinstance(elements, list) and seen.datatype == "FP32":
        elements = np.asarray(elements, np.float32)
    written = _WRITTEN.get(seen.datatype, _number)
    pieces = (elements[start : start + _PIECE] for start in range(0, len(elements), _PIECE))
    return ",".join(",".join(map(written, piece)) for piece in pieces)


def _string(element: str | bytes) -> str:
    return f'"{element if isinstance(element, str) else element.decode("utf-8", "backslashreplace")}"'


def _truth(element: Any) -> str:
    return "1" if element else "0"


def _number(element: Any) -> str:
    # As text, numpy's floats are the shortest that are read as the same number of their own width.
    return str(element).removesuffix(".0")


_WRITTEN: dict[str, Callable[[Any], str]] = {"BYTES": _string, "BOOL": _truth}
