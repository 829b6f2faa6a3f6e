"""ModelStreamInfer on models that a test plays by hand: order, ends, errors, cancellation, and what is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bident.doors import answers
from bident.doors.grpc import inference, stream_infer
from bident.doors.grpc.call import Status
from bident.doors.grpc.inference import Inference
from bident.doors.grpc.messages import pb
from bident.doors.grpc.stream_infer import InferStream
from bident.doors.pace import MOST_AT_ONCE, MOST_UNSENT
from bident.errors import Code, ServeError
from bident.wire.datatypes import BYTES, FP32
from bident.wire.infer import Column, InferRequest, InferResponse, Outcome
from tests.unit.doors.grpc.grpc_stage import FakeCall, until
from tests.unit.doors.played_engine import PlayedEngine, PlayedServable
from tests.unit.engine.engine_fakes import model_config

DECOUPLED = "model_transaction_policy { decoupled: true }"
WANTS_END = {"triton_enable_empty_final_response": pb.InferParameter(bool_param=True)}


class Stage:
    """A stream of one client: ``once`` answers once, ``many`` is decoupled."""

    def __init__(self, **metadata: str) -> None:
        self.once = PlayedServable(model_config("", batch=0, name="once"))
        self.many = PlayedServable(model_config(DECOUPLED, batch=0, name="many"))
        self.engine = PlayedEngine({"once": self.once, "many": self.many})
        self.call = FakeCall(metadata={key.encode(): value.encode() for key, value in metadata.items()})
        InferStream(Inference(self.engine, None), self.call)  # type: ignore[arg-type]

    def ask(self, model: str, request_id: str = "", **fields: Any) -> None:
        self.call.ask(question(model, request_id, **fields))

    def end(self) -> None:
        self.call.half_close()

    @property
    def said(self) -> list[tuple[str, str, bool | None]]:
        """Id, error and whether it is the last, of each answer."""
        return [
            (
                answer.infer_response.id,
                answer.error_message,
                answer.infer_response.parameters["triton_final_response"].bool_param,
            )
            for answer in self.call.said()
        ]


def question(model: str, request_id: str = "", **fields: Any) -> Any:
    request = pb.ModelInferRequest(model_name=model, id=request_id, **fields)
    request.inputs.add(name="X", datatype="FP32", shape=[2])
    request.raw_input_contents.append(b"\0" * 8)
    return request


def answer(request: InferRequest, *, final: bool = True, elements: int = 2, empty: bool = False) -> Outcome:
    columns = [] if empty else [Column("Y", FP32, np.zeros(elements, np.float32))]
    response = InferResponse(request.model_name, "1", request.id, columns, 0, -1)
    response.final = final
    return request.reply(response)


def fail(request: InferRequest, text: str = "broken", *, final: bool = True) -> None:
    response = InferResponse.failure(request, ServeError(Code.NOT_FOUND, text))
    response.final = final
    request.reply(response)


def played(test: Callable[[], Any]) -> Callable[[], None]:
    """Run a coroutine function as a test."""

    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@played
async def test_answers_of_ordinary_models_keep_the_order_of_the_requests() -> None:
    stage = Stage()
    for name in "abc":
        stage.ask("once", name)
    a, b, c = stage.once.requests
    answer(c)
    answer(b)
    assert stage.said == []
    answer(a)
    assert stage.said == [("a", "", True), ("b", "", True), ("c", "", True)]
    assert not stage.call.is_over
    stage.end()
    assert stage.call.status is Status.OK


@played
async def test_decoupled_models_answer_whenever_they_like() -> None:
    stage = Stage()
    stage.ask("once", "slow")
    stage.ask("many", "a")
    stage.ask("many", "b")
    a, b = stage.many.requests
    for request in (b, a, b):
        answer(request, final=False)
    answer(a, empty=True)
    answer(b)
    assert stage.said == [("b", "", False), ("a", "", False), ("b", "", False), ("b", "", True)]
    stage.end()
    assert not stage.call.is_over
    answer(stage.once.requests[0])
    assert stage.said[-1] == ("slow", "", True)
    assert stage.call.status is Status.OK


@played
async def test_the_end_is_an_answer_where_it_is_wanted() -> None:
    stage = Stage()
    stage.ask("many", "a", parameters=WANTS_END)
    answer(stage.many.requests[0], final=False)
    answer(stage.many.requests[0], empty=True)
    last = stage.call.said()[-1].infer_response
    assert (last.id, last.model_name, last.model_version, len(last.outputs)) == ("a", "many", "", 0)
    assert stage.said == [("a", "", False), ("a", "", True)]


@played
async def test_an_end_with_outputs_is_no_answer_of_its_own() -> None:
    stage = Stage()
    stage.ask("many", "a", parameters=WANTS_END)
    answer(stage.many.requests[0])
    assert stage.said == [("a", "", True)]


@played
async def test_errors_are_answers() -> None:
    stage = Stage()
    stage.ask("many", "a")
    stage.ask("once", "b", model_version="1")
    fail(stage.many.requests[0], "soon", final=False)
    answer(stage.many.requests[0])
    fail(stage.once.requests[0], "late")
    assert stage.said == [("a", "soon", False), ("a", "", True), ("b", "late", True)]
    failed = stage.call.said()[-1].infer_response
    assert (failed.model_name, failed.model_version) == ("once", "1")
    stage.end()
    assert stage.call.status is Status.OK


@played
async def test_requests_that_cannot_be_asked_are_answered_in_order() -> None:
    stage = Stage()
    stage.ask("once", "a")
    stage.ask("nobody", "b")
    stage.ask("once", "c", model_version="x")
    stage.ask("once", "d", raw_input_contents=[b"", b""])
    stage.ask("many", "e", raw_input_contents=[b"", b""])
    assert [said[0] for said in stage.said] == ["e"]
    answer(stage.once.requests[0])
    texts = [error for _, error, _ in stage.said]
    assert [said[0] for said in stage.said] == ["e", "a", "b", "c", "d"]
    assert "Expected 8, got 0" in texts[0]
    assert "Request for unknown model: 'nobody' is not found" in texts[2]
    assert "failed to get model version" in texts[3]
    assert all(final for _, _, final in stage.said)


@pytest.mark.parametrize("how", ["unasked", "failed"])
def test_the_first_error_closes_the_stream_where_that_is_wanted(how: str) -> None:
    async def run() -> None:
        stage = Stage(triton_grpc_error="true")
        stage.ask("many", "a")
        stage.ask("once", "b")
        if how == "unasked":
            stage.ask("nobody", "c")
        else:
            fail(stage.once.requests[0], "'nobody' is not found")
        assert stage.call.status is Status.NOT_FOUND
        assert "'nobody' is not found" in stage.call.details
        assert stage.many.requests[0] in stage.engine.cancelled
        answer(stage.many.requests[0], final=False)
        assert stage.said == []

    asyncio.run(run())


@played
async def test_bytes_that_are_no_request_close_the_stream() -> None:
    stage = Stage()
    stage.ask("many", "a")
    stage.call.ask(b"\xff\xff\xff")
    assert stage.call.status is Status.INVALID_ARGUMENT
    assert "Unable to parse request" in stage.call.details
    assert stage.engine.cancelled == stage.many.requests
    stage.ask("many", "b")
    assert len(stage.many.requests) == 1


@played
async def test_a_client_that_goes_takes_its_requests_along() -> None:
    stage = Stage()
    stage.ask("many", "a")
    stage.ask("once", "b")
    stage.ask("once", "c")
    answer(stage.once.requests[1])
    stage.call.cancel()
    assert sorted(request.id for request in stage.engine.cancelled) == ["a", "b"]
    assert answer(stage.once.requests[0]) is Outcome.ANSWERED
    answer(stage.many.requests[0], final=False)
    assert stage.said == []


@played
async def test_a_stream_without_requests_ends_well() -> None:
    stage = Stage()
    stage.end()
    assert stage.call.status is Status.OK


@played
async def test_so_many_requests_and_no_more_are_under_way() -> None:
    stage = Stage()
    most = stream_infer._MOST_REQUESTS
    for number in range(most + 100):
        stage.ask("many", str(number))
    assert len(stage.many.requests) == most
    for request in stage.many.requests[:100]:
        answer(request)
    await until(lambda: len(stage.many.requests) == most + 100)
    for request in stage.many.requests[100:]:
        answer(request)
    stage.end()
    await until(lambda: stage.call.status is Status.OK)
    assert len(stage.said) == most + 100


def test_streams_of_a_crowd_have_fewer_requests_under_way_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_infer, "_CROWD", 100)

    @played
    async def play() -> None:
        stage = Stage()
        most = stream_infer._MOST_IN_CROWD
        shared = Inference(stage.engine, None)  # type: ignore[arg-type]
        calls = [FakeCall(metadata={}) for _ in range(3)]
        for call in calls:
            InferStream(shared, call)
            for number in range(150):
                call.ask(question("many", str(number)))
        assert shared.streamed == 100 + 2 * most
        calls[0].cancel()
        assert shared.streamed == 2 * most
        for asked in range(150):
            await until(lambda asked=asked: len(stage.many.requests) > 100 + 2 * asked + 1)  # type: ignore[misc]
            for request in stage.many.requests[100 + 2 * asked :][:2]:
                answer(request)
        assert shared.streamed == 0
        assert [len(call.said()) for call in calls[1:]] == [150, 150]

    play()


@played
async def test_requests_that_are_answered_at_once_never_pile_up_on_the_stack() -> None:
    stage = Stage()
    stage.once.play = answer
    stage.call.is_paused = True
    for number in range(5000):
        stage.ask("once", str(number))
    stage.call.resume()
    await until(lambda: len(stage.said) == 5000)
    assert [said[0] for said in stage.said] == [str(number) for number in range(5000)]


@played
async def test_nothing_is_asked_while_the_client_does_not_take_its_answers() -> None:
    stage = Stage()
    stage.once.play = answer
    stage.ask("once", "a")
    stage.call.unsent = stream_infer._MOST_OWED + 1
    stage.ask("once", "b")
    assert stage.call.is_paused
    stage.ask("once", "c")
    await asyncio.sleep(2 * stream_infer._LOOK_SECONDS)
    assert len(stage.said) == 2
    stage.call.unsent = 0
    await until(lambda: len(stage.said) == 3)
    assert not stage.call.is_paused


@played
async def test_a_client_that_takes_nothing_at_all_is_cut_off() -> None:
    stage = Stage()
    stage.ask("many", "a")
    stage.call.unsent = MOST_AT_ONCE + 1
    answer(stage.many.requests[0], final=False)
    assert stage.call.status is Status.RESOURCE_EXHAUSTED
    assert stage.engine.cancelled == stage.many.requests


def test_a_client_that_stays_behind_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_infer, "MOMENT_SECONDS", 0.01)

    async def run() -> None:
        stage = Stage()
        stage.ask("many", "a")
        request = stage.many.requests[0]
        stage.call.unsent = MOST_UNSENT + 1
        answer(request, final=False)
        stage.call.unsent = MOST_UNSENT
        await asyncio.sleep(0.02)
        answer(request, final=False)
        assert not stage.call.is_over
        stage.call.unsent = MOST_UNSENT + 1
        answer(request, final=False)
        await asyncio.sleep(0.02)
        answer(request, final=False)
        assert stage.call.status is Status.RESOURCE_EXHAUSTED

    asyncio.run(run())


def test_long_requests_and_answers_keep_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "READ_HERE", 200)
    monkeypatch.setattr(answers, "WRITE_HERE", 10)

    async def run() -> None:
        stage = Stage()
        io = """
        input [ { name: "X" data_type: TYPE_STRING dims: [ -1 ] } ]
        output [ { name: "Y" data_type: TYPE_STRING dims: [ -1 ] } ]
        """
        stage.engine.servables["text"] = text = PlayedServable(model_config("", io=io, batch=0, name="text"))

        def respond(request: InferRequest) -> None:
            strings = np.array(request.inputs["X"].data, dtype=object)
            response = InferResponse("text", "1", request.id, [Column("Y", BYTES, strings)], 0, -1)
            outcomes.append(request.reply(response))
            response.settled = settled.append

        text.play = respond
        outcomes: list[Outcome] = []
        settled: list[bool] = []
        for number, count in enumerate((100, 1, 100, 1)):
            request = pb.ModelInferRequest(model_name="text", id=str(number))
            tensor = request.inputs.add(name="X", datatype="BYTES", shape=[count])
            tensor.contents.bytes_contents.extend([b"text"] * count)
            stage.call.ask(request)
        stage.ask("once", "4")
        stage.end()
        await until(lambda: len(stage.said) == 4)
        await until(lambda: len(settled) == 2)
        answer(stage.once.requests[0])
        assert [said[0] for said in stage.said] == ["0", "1", "2", "3", "4"]
        assert outcomes.count(Outcome.LATER) == 2
        assert settled == [True, True]
        assert stage.call.status is Status.OK

    asyncio.run(run())


@played
async def test_an_answer_that_cannot_be_written_is_an_error() -> None:
    stage = Stage()
    stage.ask("once", "a")
    request = stage.once.requests[0]
    response = InferResponse("once", "1", "a", [Column("Y", FP32, np.zeros(2, np.float32))], 0, -1)
    response.parameters = {"odd": object()}
    assert request.reply(response) is Outcome.FAILED
    assert stage.said == [("a", "the answer of model 'once' could not be written; see the log", True)]
