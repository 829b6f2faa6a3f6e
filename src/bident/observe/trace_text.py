"""Traces as Triton writes them to a file: JSON objects, one for each thing that is known of one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from bident.wire.trace import Moment, TensorSeen, Trace


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
    if seen.datatype == "BYTES":
        return ",".join(f'"{_readable(element)}"' for element in elements)
    if seen.datatype == "BOOL":
        return ",".join("1" if element else "0" for element in elements)
    if isinstance(elements, list) and seen.datatype == "FP32":
        elements = np.asarray(elements, np.float32)
    # As text, numpy's floats are the shortest that are read as the same number of their own width.
    return ",".join(str(element).removesuffix(".0") for element in elements)


def _readable(element: str | bytes) -> str:
    return element if isinstance(element, str) else element.decode("utf-8", "backslashreplace")
