"""A sampled request is followed wherever it goes, and a refused one to where it was refused."""

from __future__ import annotations

import asyncio

import pytest

from bident.engine.servable import Servable
from bident.errors import Code, ServeError
from bident.wire.infer import InferRequest, InferResponse, Outcome
from bident.wire.trace import Moment, Trace
from tests.unit.engine.engine_fakes import (
    BATCHING,
    INLINE,
    Asked,
    Echo,
    answered,
    ask,
    infer,
    model_config,
    on_loop,
    servable_of,
)
from tests.unit.engine.engine_hands import Hand, running, served
from tests.unit.wire.trace_recorder import Recorder

DECOUPLED = "model_transaction_policy { decoupled: true }"
RAN = ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]


def sampled(recorder: Recorder, request: Asked) -> Asked:
    request.trace = Trace(recorder, timestamps=True, tensors=False)
    return request


def names(trace: Trace) -> list[str]:
    return [event.name for event in trace.events if isinstance(event, Moment)]


@on_loop
async def test_its_moments_are_in_order_and_add_up_to_the_figures() -> None:
    recorder = Recorder()
    servable = servable_of(model_config(BATCHING + INLINE), Echo())
    request = sampled(recorder, ask(1))
    infer(servable, request)
    await answered(request)

    (trace,) = recorder.done
    assert names(trace) == ["REQUEST_START", "QUEUE_START", "INFER_RESPONSE_COMPLETE", *RAN, "REQUEST_END"]
    times = {event.name: event.ns for event in trace.events if isinstance(event, Moment)}
    assert times["COMPUTE_INPUT_END"] - times["COMPUTE_START"] == servable.stats.compute_input.ns
    assert times["COMPUTE_OUTPUT_START"] - times["COMPUTE_INPUT_END"] == servable.stats.compute_infer.ns
    assert times["QUEUE_START"] <= times["COMPUTE_START"] <= times["COMPUTE_END"] <= times["REQUEST_END"]


@on_loop
async def test_one_in_a_batch_is_followed_alone() -> None:
    recorder = Recorder()
    servable = servable_of(model_config(BATCHING + INLINE), Echo())
    requests = [ask(1), sampled(recorder, ask(2)), ask(3)]
    infer(servable, *requests)
    await answered(*requests)

    assert len(recorder.done) == 1
    assert servable.stats.success.count == 3


@on_loop
async def test_one_that_fails_in_the_model_has_run() -> None:
    def fail(_inputs: object) -> None:
        raise ValueError("no")

    recorder = Recorder()
    servable = servable_of(model_config(BATCHING + INLINE), Echo(fail))
    request = sampled(recorder, ask(1))
    infer(servable, request)
    await answered(request)

    (trace,) = recorder.done
    assert names(trace)[-5:] == [*RAN, "REQUEST_END"]


@on_loop
async def test_one_that_is_refused_ends_there() -> None:
    recorder = Recorder()
    servable = servable_of(model_config(BATCHING + INLINE), Echo())
    with pytest.raises(ServeError):
        servable.infer(sampled(recorder, ask(1, rows=99)))

    (trace,) = recorder.done
    assert names(trace) == ["REQUEST_START", "REQUEST_END"]


@on_loop
async def test_one_whose_client_has_gone_ends_without_having_run() -> None:
    recorder = Recorder()
    hand = Hand()
    servable = await served(hand)
    first, second = ask(1), sampled(recorder, ask(2))
    infer(servable, first)
    held = await running(hand)
    infer(servable, second)
    second.cancelled = True
    servable.scheduler.discard_cancelled()

    (trace,) = recorder.done
    assert names(trace) == ["REQUEST_START", "QUEUE_START", "INFER_RESPONSE_COMPLETE", "REQUEST_END"]
    held.finish()


@on_loop
async def test_a_stream_is_followed_to_its_end() -> None:
    recorder = Recorder()
    hand = Hand()
    servable = await served(hand, config=model_config(DECOUPLED))
    infer(servable, sampled(recorder, ask(1)))
    held = await running(hand)
    held.reply(0, final=False)
    held.executed()
    assert recorder.done == []
    held.reply(0)

    (trace,) = recorder.done
    assert names(trace).count("INFER_RESPONSE_COMPLETE") == 2
    assert names(trace)[-5:] == [*RAN, "REQUEST_END"]


@on_loop
async def test_an_answer_that_is_written_later_ends_the_trace_then() -> None:
    recorder = Recorder()
    servable = servable_of(model_config(BATCHING + INLINE), Echo())
    request = sampled(recorder, ask(1))
    responses: list[InferResponse] = []
    request.reply = lambda response: responses.append(response) or Outcome.LATER  # type: ignore[func-returns-value]
    await _turn(servable, request)

    assert recorder.done == []
    assert responses[0].settled is not None
    responses[0].settled(True)
    assert len(recorder.done) == 1


async def _turn(servable: Servable, request: InferRequest) -> None:
    servable.infer(request)
    await asyncio.sleep(0)


@on_loop
async def test_a_door_that_breaks_does_not_keep_the_trace() -> None:
    recorder = Recorder()
    servable = servable_of(model_config(BATCHING + INLINE), Echo())
    request = sampled(recorder, ask(1))

    def broken(_response: InferResponse) -> Outcome:
        raise ServeError(Code.INTERNAL, "the door is broken")

    request.reply = broken
    await _turn(servable, request)

    assert len(recorder.done) == 1
    assert servable.stats.fail.count == 1
