"""What fails fails alone, says why, and is never a success."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bident.engine.stats import FailureReason
from bident.errors import Code, ServeError
from bident.wire.infer import InferResponse, Outcome
from tests.unit.engine.engine_fakes import (
    BATCHING,
    INLINE,
    THREAD,
    Asked,
    Echo,
    answer_of,
    answered,
    ask,
    failures,
    infer,
    model_config,
    on_loop,
    servable_of,
    tensor,
    turns,
    until,
)


@pytest.mark.parametrize("lane", [INLINE, THREAD])
@on_loop
async def test_a_number_out_of_range_fails_only_its_own_request(lane: str) -> None:
    instance = Echo()
    servable = servable_of(model_config(BATCHING + lane), instance)
    bad = Asked(tensor("X", [1e39, 0], (1, 2)))
    good = [ask(1, rows=2), ask(2), ask(3)]

    infer(servable, good[0], bad, good[1], good[2])
    await answered(bad, *good)

    assert bad.error.code is Code.INVALID_ARG
    assert "input 'X' is out of range for FP32" in bad.error.message
    assert [request.tensors["Y"].tolist() for request in good] == [answer_of(1, 2), answer_of(2), answer_of(3)]
    assert instance.firsts == [[1, 1, 2, 3]]
    assert (servable.stats.success.count, servable.stats.inferences, servable.stats.executions) == (3, 4, 1)
    assert list(servable.stats.batches) == [4]
    assert failures(servable) == {"OTHER": 1}


@on_loop
async def test_a_batch_of_nothing_but_numbers_out_of_range_never_reaches_the_model() -> None:
    instance = Echo()
    servable = servable_of(model_config(BATCHING + INLINE), instance)
    requests = [Asked(tensor("X", [-1e39, 0], (1, 2))) for _ in range(2)]

    infer(servable, *requests)
    await answered(*requests)

    assert {request.error.code for request in requests} == {Code.INVALID_ARG}
    assert instance.batches == []
    assert (servable.stats.executions, servable.stats.success.count) == (0, 0)


@pytest.mark.parametrize("lane", [INLINE, THREAD])
@on_loop
async def test_a_model_that_raises_fails_its_batch_and_serves_the_next(lane: str) -> None:
    def fail_on_zero(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if (inputs["X"] == 0).any():
            raise ZeroDivisionError("no zeros \u20ac\nsecond line")
        return {"Y": inputs["X"]}

    servable = servable_of(model_config(BATCHING + lane), Echo(fail_on_zero))
    failing, after = [ask(0), ask(1)], ask(2)
    infer(servable, *failing)
    await answered(*failing)

    infer(servable, after)
    await answered(after)

    for request in failing:
        assert request.error.code is Code.INTERNAL
        assert request.error.message == "model 'm' failed to execute: ZeroDivisionError: no zeros \u20ac"
    assert after.tensors["Y"].tolist() == answer_of(2)
    assert failures(servable) == {"BACKEND": 2}
    assert (servable.stats.success.count, servable.stats.executions, servable.stats.inferences) == (1, 2, 1)


@on_loop
async def test_an_error_that_the_backend_meant_for_the_client_reaches_it_unchanged() -> None:
    meant = ServeError(Code.INVALID_ARG, "element 3 is not UTF-8")

    def refuse(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise meant

    servable = servable_of(model_config(BATCHING + INLINE), Echo(refuse))
    request = ask(1)
    infer(servable, request)
    await answered(request)

    assert request.error is meant


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ({"Y": np.zeros((1, 2))}, "output 'Y' of model 'm' has datatype FP64, but its config declares FP32"),
        ({"Y": np.zeros((1, 3), np.float32)}, "output 'Y' of model 'm' has shape [1, 3], but its config declares"),
        ({"Y": [[1.0, 2.0]]}, "output 'Y' of model 'm' is a list"),
        (None, "model 'm' returned a NoneType"),
    ],
)
@on_loop
async def test_an_answer_unlike_its_declaration_is_an_internal_error(returned: Any, words: str) -> None:
    servable = servable_of(model_config(BATCHING + INLINE), Echo(lambda inputs: returned))
    request = ask(1)
    infer(servable, request)
    await answered(request)

    assert request.error.code is Code.INTERNAL
    assert words in request.error.message
    assert failures(servable) == {"BACKEND": 1}


@on_loop
async def test_a_request_for_an_output_that_did_not_come_fails_alone() -> None:
    io = """
    input [ { name: "X", data_type: TYPE_FP32, dims: [ 2 ] } ]
    output [ { name: "Y", data_type: TYPE_FP32, dims: [ 2 ] }, { name: "Z", data_type: TYPE_FP32, dims: [ 2 ] } ]
    """
    servable = servable_of(model_config(BATCHING + INLINE, io=io), Echo())
    wants_z, wants_y, wants_all = ask(1, rows=2), ask(2), ask(3)
    wants_z.outputs, wants_y.outputs = ["Z"], ["Y"]
    infer(servable, wants_z, wants_y, wants_all)
    await answered(wants_z, wants_y, wants_all)

    assert wants_z.error.code is Code.INTERNAL
    assert "produced no output 'Z'" in wants_z.error.message
    assert wants_y.tensors["Y"].tolist() == answer_of(2)
    assert {name: array.tolist() for name, array in wants_all.tensors.items()} == {"Y": answer_of(3)}
    assert (servable.stats.success.count, failures(servable)) == (2, {"BACKEND": 1})


@on_loop
async def test_an_answer_that_cannot_be_delivered_costs_nobody_else_theirs() -> None:
    servable = servable_of(model_config(BATCHING + INLINE), Echo())
    requests = [ask(1), ask(2), ask(3)]

    def fail(response: object) -> None:
        raise RuntimeError("the pipe is broken")

    requests[1].reply = fail  # type: ignore[assignment]
    infer(servable, *requests)
    await answered(requests[0], requests[2])

    assert requests[2].tensors["Y"].tolist() == answer_of(3)
    assert servable.scheduler.is_idle


@pytest.mark.parametrize("lane", [INLINE, THREAD])
@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()])
@on_loop
async def test_a_model_that_tries_to_end_the_process_only_fails(lane: str, raised: BaseException) -> None:
    leaving = True

    def leave(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if leaving:
            raise raised
        return {"Y": inputs["X"]}

    servable = servable_of(model_config(BATCHING + lane), Echo(leave))
    failing, after = ask(1), ask(2)
    infer(servable, failing)
    await answered(failing)
    leaving = False
    infer(servable, after)
    await answered(after)

    assert failing.error.code is Code.INTERNAL
    assert type(raised).__name__ in failing.error.message
    assert after.tensors["Y"].tolist() == answer_of(2)


@pytest.mark.parametrize("lane", [INLINE, THREAD])
@on_loop
async def test_values_that_cannot_be_joined_cost_only_their_own_request(lane: str) -> None:
    servable = servable_of(model_config(BATCHING + lane), Echo())
    unfit = Asked(tensor("X", [1.0, 2.0, 3.0], (1, 2)))
    requests = [ask(1), unfit, ask(3)]
    infer(servable, *requests)
    await answered(*requests)

    assert unfit.error.code is Code.INTERNAL
    assert requests[0].tensors["Y"].tolist() == answer_of(1)
    assert requests[2].tensors["Y"].tolist() == answer_of(3)
    assert servable.stats.success.count == 2


@on_loop
async def test_an_answer_that_fails_or_comes_later_is_counted_when_that_is_known() -> None:
    servable = servable_of(model_config(BATCHING + INLINE), Echo())
    stats = servable.stats
    requests = [ask(value) for value in range(4)]
    responses: list[InferResponse] = []

    def note(outcome: Outcome) -> Callable[[InferResponse], Outcome]:
        return lambda response: (responses.append(response), outcome)[1]

    for request, outcome in zip(
        requests, (Outcome.ANSWERED, Outcome.FAILED, Outcome.LATER, Outcome.LATER), strict=True
    ):
        request.reply = note(outcome)
    infer(servable, *requests)
    await until(lambda: len(responses) == 4, "the answers")
    await turns()
    assert (stats.success.count, stats.fail.count, stats.executions, stats.inferences) == (1, 1, 1, 1)

    for response, is_answered in zip(responses[2:], (True, False), strict=True):
        assert response.settled is not None
        response.settled(is_answered)
    assert (stats.success.count, stats.fail.count, stats.executions, stats.inferences) == (2, 2, 1, 2)
    assert stats.failures[FailureReason.OTHER] == 2


@on_loop
async def test_a_batch_that_is_only_answered_later_is_one_execution() -> None:
    servable = servable_of(model_config(BATCHING + INLINE), Echo())
    responses: list[InferResponse] = []
    for value in range(2):
        request = ask(value)
        request.reply = lambda response: (responses.append(response), Outcome.LATER)[1]  # type: ignore[method-assign]
        infer(servable, request)
    await until(lambda: len(responses) == 2, "the answers")
    await turns()
    for response in responses:
        assert response.settled is not None
        response.settled(True)
    assert (servable.stats.success.count, servable.stats.executions, servable.stats.inferences) == (2, 1, 2)


@on_loop
async def test_a_thread_lets_go_of_what_it_has_run() -> None:
    servable = servable_of(model_config(BATCHING + THREAD), Echo(lambda inputs: {"Y": inputs["X"] * 2}))
    request = ask(1)
    infer(servable, request)
    await answered(request)
    gone = weakref.ref(request)
    request.answers.clear()
    del request.reply, request  # the fake's own circle

    await until(lambda: gone() is None, "the request to go")
