"""What a trace notes, and when it is complete."""

from __future__ import annotations

from typing import Any

import numpy as np

from bident.wire.datatypes import FP32
from bident.wire.infer import Column, InferInput, InferRequest, InferResponse, Spent
from bident.wire.trace import Moment, TensorSeen, Trace, TracedSpent
from tests.unit.wire.trace_recorder import Recorder


def request(identity: str = "") -> InferRequest:
    array = np.array([1.5, 2], np.float32)
    return InferRequest("m", "", identity, {"X": InferInput("X", FP32, (2,), 2, array)}, 1)


def begun(recorder: Recorder, **wanted: bool) -> Trace:
    trace = Trace(recorder, **{"timestamps": True, "tensors": False, **wanted})
    trace.start(request("r"), "m", 3)
    return trace


def names(trace: Trace) -> list[str]:
    return [event.name for event in trace.events if isinstance(event, Moment)]


def test_a_request_from_beginning_to_end() -> None:
    recorder = Recorder()
    trace = Trace(recorder, timestamps=True, tensors=True)
    asked = request("r")
    trace.stamp("RECV", 5)
    trace.start(asked, "m", 3)
    trace.queue(asked.inputs.values())
    trace.answer(InferResponse("m", "3", "r", [Column("Y", FP32, np.zeros((1, 2), np.float32))], 0, -1))
    TracedSpent(trace, asked, None).add(10, 20, 30, 40)
    trace.end()

    assert recorder.done == [trace]
    assert (trace.id, trace.model_name, trace.model_version, trace.request_id, trace.begun_at) == (1, "m", 3, "r", 1)
    seen = [event for event in trace.events if isinstance(event, TensorSeen)]
    assert [(event.activity, event.name, event.datatype, event.shape) for event in seen] == [
        ("TENSOR_QUEUE_INPUT", "X", "FP32", (2,)),
        ("TENSOR_BACKEND_OUTPUT", "Y", "FP32", (1, 2)),
    ]
    assert names(trace) == [
        "RECV",
        "REQUEST_START",
        "QUEUE_START",
        "INFER_RESPONSE_COMPLETE",
        "COMPUTE_START",
        "COMPUTE_INPUT_END",
        "COMPUTE_OUTPUT_START",
        "COMPUTE_END",
        "REQUEST_END",
    ]
    assert [event.ns for event in trace.events if isinstance(event, Moment)][4:8] == [10, 30, 60, 100]


def test_tensors_are_as_they_were_when_they_passed() -> None:
    asked = request()
    trace = begun(Recorder(), tensors=True)
    trace.queue(asked.inputs.values())
    asked.inputs["X"].data[0] = 7

    (seen,) = [event for event in trace.events if isinstance(event, TensorSeen)]
    assert list(seen.data) == [1.5, 2]


def test_what_is_not_wanted_is_not_noted() -> None:
    asked = request()
    trace = begun(Recorder(), timestamps=False)
    trace.queue(asked.inputs.values())
    TracedSpent(trace, asked, None).add(1, 2, 3, 4)
    trace.end()

    assert trace.events == []


def test_a_family_is_complete_when_its_last_member_has_ended() -> None:
    recorder = Recorder()
    root = begun(recorder)
    child = root.child()
    child.start(request(), "n", 1)
    grandchild = child.child()
    grandchild.start(request(), "o", 1)

    root.end()
    child.end()
    assert recorder.done == []
    grandchild.end()

    assert recorder.done == [root]
    assert root.family == [root, child, grandchild]
    assert [trace.parent_id for trace in root.family] == [0, root.id, child.id]
    assert "INFER_RESPONSE_COMPLETE" not in names(child)


def test_the_end_comes_once() -> None:
    recorder = Recorder()
    trace = begun(recorder)
    trace.end()
    trace.end()
    trace.stamp("LATE")

    assert recorder.done == [trace]
    assert names(trace) == ["REQUEST_START", "REQUEST_END"]


def test_a_child_that_never_began_is_not_waited_for() -> None:
    recorder = Recorder()
    root = begun(recorder)
    root.child().end()
    root.end()

    assert recorder.done == [root]
    assert root.family == [root]


def test_a_child_that_begins_when_all_is_written_is_nobodys() -> None:
    recorder = Recorder()
    root = begun(recorder)
    child = root.child()
    root.end()
    child.start(request(), "n", 1)
    child.queue(())
    child.end()

    assert recorder.done == [root]
    assert (root.family, child.events) == ([root], [])


def test_who_is_told_of_the_times_anyway_still_is() -> None:
    outer = Spent()
    TracedSpent(begun(Recorder()), request(), outer).add(1, 2, 3, 4)

    told: list[Any] = [outer.queue_ns, outer.input_ns, outer.infer_ns, outer.output_ns]
    assert told == [1, 2, 3, 4]
