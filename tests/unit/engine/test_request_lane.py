"""Instances that see single requests: what they are given, and what becomes of what they say."""

from __future__ import annotations

import numpy as np
import pytest

from bident.errors import Code, ServeError
from tests.unit.engine.engine_fakes import (
    Asked,
    answer_of,
    answered,
    ask,
    failures,
    infer,
    model_config,
    on_loop,
    tensor,
    turns,
    until,
)
from tests.unit.engine.engine_hands import BROKEN, Hand, running, served

DECOUPLED = "model_transaction_policy { decoupled: true }"
ORDERED = "dynamic_batching { preserve_ordering: true }"


# Batches and their answers


@on_loop
async def test_a_tick_is_a_batch_and_each_request_gets_its_rows() -> None:
    hand = Hand()
    servable = await served(hand)
    requests = [ask(1), ask(2, rows=3), ask(3)]
    infer(servable, *requests)
    held = await running(hand)
    assert (hand.firsts, held.rows) == ([[1, 2, 2, 2, 3]], [1, 3, 1])
    held.finish()
    assert [request.tensors["Y"].tolist() for request in requests] == [answer_of(1), answer_of(2, 3), answer_of(3)]
    assert (servable.stats.inferences, servable.stats.executions, servable.stats.success.count) == (5, 1, 3)
    assert servable.scheduler.is_idle


@on_loop
async def test_one_batch_at_a_time_is_executed_and_the_next_is_what_has_come_meanwhile() -> None:
    hand = Hand()
    servable = await served(hand)
    infer(servable, ask(1))
    first = await running(hand)
    infer(servable, ask(2), ask(3))
    await turns()
    assert (len(hand.batches), servable.scheduler.pending) == (1, 2)
    first.finish()
    await running(hand, 2)
    assert hand.firsts == [[1], [2, 3]]


@on_loop
async def test_more_rows_than_were_asked_for_cost_only_that_request_its_answer() -> None:
    hand = Hand()
    servable = await served(hand)
    right, wrong, also_right = requests = [ask(1), ask(2), ask(3)]
    infer(servable, *requests)
    held = await running(hand)
    held.finish({"Y": np.array([[1, -1], [2, -2], [2, -2], [3, -3]], np.float32)}, [1, 2, 1])
    assert right.tensors["Y"].tolist() == answer_of(1)
    assert also_right.tensors["Y"].tolist() == answer_of(3)
    assert wrong.error.code is Code.INTERNAL
    assert "output 'Y' of model 'm' has shape [2, 2]" in wrong.error.message
    assert servable.scheduler.is_idle


@on_loop
async def test_json_values_that_do_not_fit_cost_only_their_request_its_answer() -> None:
    hand = Hand()
    servable = await served(hand)
    unfit = Asked(tensor("X", [1e39, 0], (1, 2)))
    fit = [ask(1), ask(2)]
    infer(servable, fit[0], unfit, fit[1])
    held = await running(hand)
    assert unfit.error.code is Code.INVALID_ARG
    assert hand.firsts == [[1, 2]]
    held.finish()
    assert [request.tensors["Y"].tolist() for request in fit] == [answer_of(1), answer_of(2)]
    assert failures(servable) == {"OTHER": 1}


@on_loop
async def test_a_batch_of_nothing_but_unfit_requests_never_reaches_the_instance() -> None:
    hand = Hand()
    servable = await served(hand)
    unfit = Asked(tensor("X", [1e39, 0], (1, 2)))
    infer(servable, unfit)
    await answered(unfit)
    assert not hand.batches
    infer(servable, ask(1))
    await running(hand)


@on_loop
async def test_a_batch_that_the_instance_cannot_take_fails_and_the_next_is_tried() -> None:
    hand = Hand()
    servable = await served(hand)
    hand.refusal = ServeError(Code.UNAVAILABLE, "no memory")
    refused = ask(1)
    infer(servable, refused)
    await answered(refused)
    assert refused.error is hand.refusal
    hand.refusal = None
    infer(servable, ask(2))
    await running(hand)
    assert failures(servable) == {"BACKEND": 1}


@on_loop
async def test_errors_of_the_model_are_logged_once_a_batch_with_the_ids(caplog: pytest.LogCaptureFixture) -> None:
    hand = Hand()
    servable = await served(hand)
    requests = [ask(1, request_id="a"), ask(2), ask(3)]
    infer(servable, *requests)
    held = await running(hand)
    held.executed()
    held.answers.replied(0, {}, error=BROKEN)
    held.answers.replied(1, {}, error=BROKEN)
    held.answers.replied(2, {}, error=ServeError(Code.NOT_FOUND, "on purpose"))
    assert [record.getMessage() for record in caplog.records if record.name == "bident.engine"] == [
        "model 'm', request 'a': the model failed",
        "model 'm', a request without id: the same",
    ]
    assert requests[2].error.code is Code.NOT_FOUND


# Order


@on_loop
async def test_a_model_that_keeps_the_order_answers_in_it_whoever_is_quicker() -> None:
    hands = [Hand(), Hand()]
    servable = await served(*hands, config=model_config(ORDERED, batch=1))
    requests = [ask(1), ask(2)]
    infer(servable, *requests)
    await until(lambda: all(hand.batches for hand in hands), "both at work")
    (early,) = [hand.batches[0] for hand in hands if hand.firsts == [[1]]]
    (late,) = [hand.batches[0] for hand in hands if hand.firsts == [[2]]]
    late.finish()
    await turns()
    assert not requests[1].is_answered
    early.finish()
    assert [request.tensors["Y"].tolist() for request in requests] == [answer_of(1), answer_of(2)]


@on_loop
async def test_replies_to_single_requests_keep_the_order_too_and_a_failure_holds_up_nobody() -> None:
    hands = [Hand(), Hand()]
    servable = await served(*hands, config=model_config(ORDERED, batch=1))
    requests = [ask(1), ask(2), ask(3)]
    infer(servable, *requests)
    await until(lambda: all(hand.batches for hand in hands), "both at work")
    by_value = {hand.firsts[0][0]: hand for hand in hands}
    by_value[2].batches[0].executed()
    by_value[2].batches[0].reply(0, 2)
    await running(by_value[2], 2)
    by_value[2].batches[1].finish()
    assert not any(request.is_answered for request in requests)
    by_value[1].die(by_value[1].batches[0])
    assert requests[0].error is BROKEN
    assert [request.tensors["Y"].tolist() for request in requests[1:]] == [answer_of(2), answer_of(3)]
    assert servable.scheduler.is_idle


# Streams


@on_loop
async def test_an_instance_takes_the_next_batch_before_its_streams_have_ended() -> None:
    hand = Hand()
    servable = await served(hand, config=model_config(DECOUPLED, batch=0))
    first, second = Asked(tensor("X", [1, -1], (2,))), Asked(tensor("X", [2, -2], (2,)))
    infer(servable, first)
    held = await running(hand)
    infer(servable, second)
    await turns()
    assert len(hand.batches) == 1
    held.answers.replied(0, {"Y": np.array([7, 8], np.float32)}, final=False)
    held.executed()
    await running(hand, 2)
    held.answers.replied(0, {"Y": np.array([9, 9], np.float32)}, final=False, parameters={"n": 2})
    assert not servable.scheduler.is_idle
    held.end(0)
    hand.batches[1].executed()
    hand.batches[1].end(0)
    assert [answer.final for answer in first.answers] == [False, False, True]
    assert [answer.parameters for answer in first.answers] == [None, {"n": 2}, None]
    assert [[output.array.tolist() for output in answer.outputs] for answer in first.answers] == [
        [[7, 8]],
        [[9, 9]],
        [],
    ]
    assert [answer.final for answer in second.answers] == [True]
    assert servable.scheduler.is_idle
    assert servable.stats.success.count == 2


@on_loop
async def test_a_stream_may_go_on_after_an_output_that_is_wrong() -> None:
    hand = Hand()
    servable = await served(hand, config=model_config(DECOUPLED, batch=0))
    request = Asked(tensor("X", [1, -1], (2,)))
    infer(servable, request)
    held = await running(hand)
    held.answers.replied(0, {"Y": np.zeros(3, np.float32)}, final=False)
    held.answers.replied(0, {"Y": np.ones(2, np.float32)}, final=False)
    held.executed()
    held.end(0)
    assert [answer.error is None for answer in request.answers] == [False, True, True]
    assert [answer.final for answer in request.answers] == [False, False, True]
