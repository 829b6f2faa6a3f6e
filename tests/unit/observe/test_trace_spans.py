"""Which requests leave spans, and what these say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pytest

from bident.errors import invalid_arg
from bident.observe.trace_settings import TraceSetting
from bident.observe.trace_spans import TraceSpans
from bident.observe.tracing import Sampler
from bident.wire.datatypes import BYTES, FP32, DataType
from bident.wire.infer import Column, InferInput, InferRequest, InferResponse
from bident.wire.trace import Trace, TracedSpent
from bident.wire.trace_context import TraceContext, propagated

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TIMES = frozenset({"TIMESTAMPS"})
BOTH = frozenset({"TIMESTAMPS", "TENSORS"})


class Export:
    """Keeps the spans, by their names."""

    def __init__(self) -> None:
        self.spans: dict[str, dict[str, Any]] = {}
        self.most = 100

    def has_room(self, count: int) -> bool:
        return count <= self.most

    def put(self, place: TraceContext, name: str, start_ns: int, end_ns: int, **said: Any) -> None:
        assert start_ns <= end_ns
        self.spans[name] = {"place": place, "times": (start_ns, end_ns), **said}

    def attributes(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.spans[name]["attributes"]
        return found

    def events(self, name: str) -> Sequence[str]:
        return [event for event, _ in self.spans[name]["events"]]


@pytest.fixture
def export() -> Export:
    return Export()


def sampler(export: Export, level: frozenset[str] = TIMES, rate: int = 1, count: int = -1) -> Sampler:
    setting = TraceSetting(level, rate, count)
    numbers = iter(range(1, 100))
    return Sampler(setting, TraceSpans(export).outlet(setting), numbers.__next__, is_on=True)  # type: ignore[arg-type]


def begun(picked: Sampler, *, tensors: bool = False, parent: bytes = b"") -> Trace:
    client = propagated({b"traceparent": parent})
    trace = Trace(picked, timestamps=True, tensors=tensors, above=picked.enter(client))
    assert picked.takes(is_wanted=True)
    return trace


def asked(name: str = "m", data: Any = (1.0, 2.0), datatype: DataType = FP32) -> InferRequest:
    array = np.array(data, object if datatype is BYTES else np.float32)
    return InferRequest(name, "", "r", {"X": InferInput("X", datatype, array.shape, array.size, array)}, 1)


def run(trace: Trace, request: InferRequest, version: int = 3) -> None:
    """The request from its model's door to its answer."""
    trace.start(request, request.model_name, version)
    trace.queue(request.inputs.values())
    request.queued_ns = trace.events[-1].ns if not trace.tensors else 0  # type: ignore[union-attr]
    TracedSpent(trace, request, None).add(1000, 2000, 3000, 4000, 7)


def test_a_request_is_three_spans(export: Export) -> None:
    trace = begun(sampler(export))
    trace.stamp("HTTP_RECV_START", 5)
    trace.stamp("HTTP_RECV_END", 6)
    run(trace, asked())
    trace.answer(InferResponse("m", "3", "r", [], 0, -1))
    trace.stamp("HTTP_SEND_START")
    trace.end()

    door, model, compute = (export.spans[name]["place"] for name in ("InferRequest", "m", "compute"))
    assert (door.parent_id, model.parent_id, compute.parent_id) == (0, door.span_id, model.span_id)
    assert door.trace_id == model.trace_id == compute.trace_id
    assert export.events("InferRequest") == [
        "HTTP_RECV_START",
        "HTTP_RECV_END",
        "INFER_RESPONSE_COMPLETE",
        "HTTP_SEND_START",
    ]
    assert export.events("m") == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    assert export.events("compute") == ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
    assert export.attributes("m") == {
        "triton.model_name": "m",
        "triton.model_version": 3,
        "triton.trace_id": 1,
        "triton.trace_parent_id": 0,
        "triton.request_id": "r",
        "langfuse.observation.type": "span",
        "langfuse.observation.metadata.model": "m",
        "langfuse.observation.metadata.version": "3",
        "langfuse.observation.metadata.batch_size": 7,
        "langfuse.observation.metadata.queue_us": 1,
        "langfuse.observation.metadata.compute_us": 9,
    }
    assert export.attributes("InferRequest")["langfuse.trace.name"] == "m"


def test_the_clients_trace_goes_on_and_models_see_their_own_span(export: Export) -> None:
    trace = begun(sampler(export), parent=PARENT)
    run(trace, asked())
    child = trace.child()
    run(child, asked("n"))
    context = orjson.loads(trace.context or "")["traceparent"]
    child.end()
    trace.end()

    door, model, step = (export.spans[name]["place"] for name in ("InferRequest", "m", "n"))
    assert f"{door.parent_id:016x}" == PARENT.decode().split("-")[2]
    assert context == f"00-{PARENT.decode().split('-')[1]}-{model.span_id:016x}-01"
    assert step.parent_id == model.span_id
    assert "langfuse.trace.name" not in export.attributes("InferRequest")


def test_a_stream_over_grpc_begins_when_its_request_has_come(export: Export) -> None:
    trace = begun(sampler(export))
    trace.stamp("GRPC_WAITREAD_START", 5)
    trace.stamp("GRPC_WAITREAD_END")
    run(trace, asked())
    trace.end()

    assert export.spans["InferRequest"]["times"][0] == dict(export.spans["InferRequest"]["events"])["GRPC_WAITREAD_END"]


def test_tensors_are_summarised_where_they_are_wanted(export: Export) -> None:
    trace = begun(sampler(export, BOTH), tensors=True)
    request = asked(data=[b"secret" * 100, b"\xff"], datatype=BYTES)
    run(trace, request)
    trace.answer(InferResponse("m", "3", "r", [Column("Y", FP32, np.zeros((5, 9), np.float32))], 0, -1))
    trace.end()

    (seen,) = orjson.loads(export.attributes("m")["langfuse.observation.input"])
    assert (seen["name"], seen["datatype"], seen["shape"]) == ("X", "BYTES", [2])
    assert seen["first"] == [("secret" * 100)[:200] + "...", "\ufffd"]
    (given,) = orjson.loads(export.attributes("m")["langfuse.observation.output"])
    assert given == {"name": "Y", "datatype": "FP32", "shape": [5, 9], "first": [0.0] * 16}


@pytest.mark.parametrize(("tensors", "said"), [(False, ""), (True, "no such thing as 'secret'")])
def test_a_failure_is_a_code_and_words_only_where_tensors_are_wanted(export: Export, tensors: bool, said: str) -> None:
    trace = begun(sampler(export), tensors=tensors)
    trace.start(asked(), "m", 1)
    trace.fail(invalid_arg("no such thing as 'secret'"))
    trace.end()

    assert export.spans["m"]["error"] == export.spans["InferRequest"]["error"] == said
    assert export.attributes("m")["error.type"] == "invalid_arg"
    assert "compute" not in export.spans


def test_rate_and_count_do_not_hold_for_what_is_part_of_a_larger_trace(export: Export) -> None:
    def taken(picked: Sampler, *, is_wanted: bool) -> int:
        return sum(picked.takes(is_wanted=is_wanted) for _ in range(4))

    assert taken(sampler(export, rate=0), is_wanted=False) == 0
    assert taken(sampler(export, rate=0), is_wanted=True) == 4
    assert taken(sampler(export, rate=1, count=1), is_wanted=False) == 1
    assert taken(sampler(export, rate=1, count=1), is_wanted=True) == 4


def test_a_trace_that_does_not_find_room_is_dropped_as_a_whole(export: Export) -> None:
    picked = sampler(export)
    for export.most in (2, 3):
        assert export.spans == {}
        trace = begun(picked)
        run(trace, asked())
        trace.end()

    assert export.spans.keys() == {"InferRequest", "m", "compute"}
