"""Traces as spans, as Triton makes them in its mode ``opentelemetry``: the request, its model, the model's run.

Names, nesting, events and the ``triton.*`` attributes are Triton's (``server/src/tracer.cc``). The
``langfuse.*`` ones are for Langfuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING

import orjson

from bident.observe.langfuse import METADATA, OBSERVATION, TRACE_NAME
from bident.wire.trace import COMPUTE, Moment, TensorSeen, Trace
from bident.wire.trace_context import TraceContext

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from bident.observe.span_export import SpanExport
    from bident.observe.trace_settings import TraceSetting

_OF_MODEL = frozenset(("REQUEST_START", "QUEUE_START", "REQUEST_END"))
_OF_RUN = frozenset(COMPUTE)
_BELOW_REQUEST = _OF_MODEL | _OF_RUN
_WAITING = "GRPC_WAITREAD_START"
_FIRST_ELEMENTS = 16
_FIRST_TENSORS = 16
_FIRST_BYTES = 200


class TraceSpans:
    """Makes spans of complete traces, and gives them to ``export``. Belongs to the event loop."""

    def __init__(self, export: SpanExport) -> None:
        self._export = export

    def outlet(self, setting: TraceSetting) -> TraceSpans:
        """Whatever picked them, traces go the same way."""
        return self

    def enter(self, client: TraceContext | None) -> TraceContext | None:
        """The span of the request: part of its client's trace, or the first of a new one."""
        return TraceContext.first() if client is None else client.below()

    def place(self, above: TraceContext | None) -> TraceContext | None:
        """The span of a model, within that of the request or of the model that asks."""
        return None if above is None else above.below()

    def put(self, root: Trace, *, last: bool) -> None:
        """Have ``root`` and its family sent, if there is room."""
        if not self._export.has_room(1 + 2 * len(root.family)):
            return
        clock_ns = time_ns() - monotonic_ns()
        self._put_request(root, clock_ns)
        for trace in root.family:
            self._put_model(trace, clock_ns)

    def finish(self) -> None:
        """Nothing is kept back."""

    def close(self, seconds: float) -> None:
        """Have everything sent, for at most ``seconds``. Blocks."""
        self._export.close(seconds)

    def _put_request(self, root: Trace, clock_ns: int) -> None:
        assert root.above is not None
        moments = list(_moments(root.events))
        own = [event for event in moments if event.name not in _BELOW_REQUEST]
        start = next(event.ns for event in moments if event.name != _WAITING)
        attributes: dict[str, AttributeValue] = {f"{OBSERVATION}.type": "span"}
        if not root.above.parent_id:
            attributes[TRACE_NAME] = root.model_name
        self._export.put(
            root.above,
            "InferRequest",
            start + clock_ns,
            max(event.ns for trace in root.family for event in _moments(trace.events)) + clock_ns,
            attributes=attributes,
            events=_at(own, clock_ns),
            error=_said(root),
            is_entry=True,
        )

    def _put_model(self, trace: Trace, clock_ns: int) -> None:
        assert trace.place is not None
        moments = list(_moments(trace.events))
        own = [event for event in moments if event.name in _OF_MODEL]
        run = [event for event in moments if event.name in _OF_RUN]
        self._export.put(
            trace.place,
            trace.model_name,
            own[0].ns + clock_ns,
            own[-1].ns + clock_ns,
            attributes=_attributes(trace, {event.name: event.ns for event in moments}),
            events=_at(own, clock_ns),
            error=_said(trace),
        )
        if run:
            self._export.put(
                trace.place.below(),
                "compute",
                run[0].ns + clock_ns,
                run[-1].ns + clock_ns,
                attributes={f"{OBSERVATION}.type": "span"},
                events=_at(run, clock_ns),
            )


def _moments(events: Iterable[Moment | TensorSeen]) -> Iterable[Moment]:
    return (event for event in events if isinstance(event, Moment))


def _at(moments: Sequence[Moment], clock_ns: int) -> list[tuple[str, int]]:
    return [(moment.name, moment.ns + clock_ns) for moment in moments]


def _said(trace: Trace) -> str | None:
    """Why it failed; the words only where tensors are wanted too, as they may quote from them."""
    if trace.error is None:
        return None
    return trace.error[1] if trace.tensors else ""


def _attributes(trace: Trace, at_ns: Mapping[str, int]) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "triton.model_name": trace.model_name,
        "triton.model_version": trace.model_version,
        "triton.trace_id": trace.id,
        "triton.trace_parent_id": trace.parent_id,
        f"{OBSERVATION}.type": "span",
        f"{METADATA}.model": trace.model_name,
        f"{METADATA}.version": str(trace.model_version),
    }
    if trace.request_id:
        attributes["triton.request_id"] = trace.request_id
    if trace.batch_size:
        attributes[f"{METADATA}.batch_size"] = trace.batch_size
    if "COMPUTE_END" in at_ns:
        attributes[f"{METADATA}.queue_us"] = (at_ns["COMPUTE_START"] - at_ns["QUEUE_START"]) // 1000
        attributes[f"{METADATA}.compute_us"] = (at_ns["COMPUTE_END"] - at_ns["COMPUTE_START"]) // 1000
    if trace.error is not None:
        attributes["error.type"] = trace.error[0]
    seen = [event for event in trace.events if isinstance(event, TensorSeen)]
    for side, activity in (("input", "TENSOR_QUEUE_INPUT"), ("output", "TENSOR_BACKEND_OUTPUT")):
        passed = [tensor for tensor in seen if tensor.activity == activity]
        if passed:
            attributes[f"{OBSERVATION}.{side}"] = _summaries(passed)
    return attributes


def _summaries(tensors: Sequence[TensorSeen]) -> str:
    """What the tensors are, and how they begin, as JSON."""
    said = [
        {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape, "first": _first(tensor)}
        for tensor in tensors[:_FIRST_TENSORS]
    ]
    return orjson.dumps(said, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _first(tensor: TensorSeen) -> list[object]:
    data = tensor.data
    elements = data[:_FIRST_ELEMENTS] if isinstance(data, list) else data.reshape(-1)[:_FIRST_ELEMENTS].tolist()
    if tensor.datatype == "BYTES":
        return [_short(element) for element in elements]
    return list(elements)


def _short(element: str | bytes) -> str:
    data = element.encode("utf-8", "replace") if isinstance(element, str) else element
    text = data[: _FIRST_BYTES + 1].decode("utf-8", "replace")
    return text if len(data) <= _FIRST_BYTES else f"{text[:_FIRST_BYTES]}..."
