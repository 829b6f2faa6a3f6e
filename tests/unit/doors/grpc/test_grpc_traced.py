"""What the gRPC door notes of traced requests: when they came, and when their answers went."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from bident.doors import answers
from bident.doors.grpc.inference import Inference
from bident.doors.grpc.messages import pb
from bident.doors.grpc.stream_infer import InferStream
from bident.wire.datatypes import FP32
from bident.wire.infer import Column, InferRequest, InferResponse, Outcome
from bident.wire.trace import Trace
from tests.unit.doors.grpc.grpc_stage import FakeCall, until
from tests.unit.doors.played_engine import PlayedEngine, PlayedServable
from tests.unit.engine.engine_fakes import model_config

WHOLE = ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "GRPC_SEND_START", "GRPC_SEND_END"]


class Recorder:
    """Traces every request, and keeps the traces."""

    is_on = True

    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.metadata: list[Any] = []

    def number(self) -> int:
        return len(self.traces) + 1

    def place(self, above: Any) -> Any:
        return above

    def complete(self, root: Trace) -> None:
        raise AssertionError

    def begin(self, request: InferRequest, headers: Any) -> Trace:
        self.traces.append(Trace(self, timestamps=True, tensors=False))
        self.metadata.append(headers)
        return self.traces[-1]

    def names(self, number: int = 0) -> list[str]:
        events = self.traces[number].events
        assert [event.ns for event in events] == sorted(event.ns for event in events)  # type: ignore[union-attr]
        return [event.name for event in events]


class Stage:
    """A model ``m`` that a test plays, every request to it traced."""

    def __init__(self) -> None:
        self.servable = PlayedServable(model_config("", batch=0))
        self.recorder = Recorder()
        engine = PlayedEngine({"m": self.servable}, tracing=self.recorder)  # type: ignore[arg-type]
        self.inference = Inference(engine, None)  # type: ignore[arg-type]
        self.call = FakeCall(metadata={b"traceparent": b"00"})

    @property
    def asked(self) -> InferRequest:
        return self.servable.requests[-1]


def question(request_id: str = "") -> bytes:
    request = pb.ModelInferRequest(model_name="m", id=request_id, raw_input_contents=[b"\0" * 8])
    request.inputs.add(name="X", datatype="FP32", shape=[2])
    text: bytes = request.SerializeToString()
    return text


def answer(request: InferRequest, array: Any = (1, 2), request_id: str = "") -> tuple[InferResponse, Outcome]:
    response = InferResponse("m", "1", request_id, [Column("Y", FP32, np.array(array, np.float32))], 0, -1)
    return response, request.reply(response)


def test_a_unary_call() -> None:
    stage = Stage()
    stage.inference.model_infer(stage.call, question())
    assert stage.asked.trace is stage.recorder.traces[0]
    assert stage.recorder.names() == WHOLE[:2]
    answer(stage.asked)
    assert stage.recorder.names() == WHOLE
    assert stage.recorder.metadata == [stage.call.metadata]


def test_an_answer_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "WRITE_HERE", 1)

    async def run() -> None:
        stage = Stage()
        request = pb.ModelInferRequest.FromString(question())
        output = request.outputs.add(name="Y")
        output.parameters["classification"].int64_param = 1
        stage.inference.model_infer(stage.call, request.SerializeToString())
        response, outcome = answer(stage.asked)
        assert outcome is Outcome.LATER
        settled: list[list[str]] = []
        response.settled = lambda answered: settled.append(stage.recorder.names())
        await until(lambda: settled)
        assert settled == [WHOLE]

    asyncio.run(run())


def test_requests_of_a_stream() -> None:
    async def run() -> None:
        stage = Stage()
        InferStream(stage.inference, stage.call)
        stage.call.ask(question("a"), question("b"))
        for request in stage.servable.requests:
            answer(request)
        assert [stage.recorder.names(number) for number in (0, 1)] == [WHOLE, WHOLE]
        ends = [trace.events[1].ns for trace in stage.recorder.traces]  # type: ignore[union-attr]
        starts = [trace.events[0].ns for trace in stage.recorder.traces]  # type: ignore[union-attr]
        assert starts[1] == ends[0]

    asyncio.run(run())
