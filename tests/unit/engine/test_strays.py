"""Outputs that a model should have declared, or given: the log says so, once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.engine.engine_fakes import Asked, answer_of, ask, infer, model_config, on_loop
from tests.unit.engine.engine_hands import Hand, running, served

DECOUPLED = "model_transaction_policy { decoupled: true }"
Y = np.array([[1, -1]], np.float32)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


async def answered_with(hand: Hand, servable: object, outputs: dict[str, np.ndarray], *wanted: str) -> Asked:
    request = ask(1)
    request.outputs = list(wanted) or None
    infer(servable, request)  # type: ignore[arg-type]
    (await running(hand, len(hand.batches) + 1)).finish(outputs)
    return request


@on_loop
async def test_an_undeclared_output_is_dropped_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    hand = Hand()
    servable = await served(hand)
    for _ in range(3):
        request = await answered_with(hand, servable, {"Y": Y, "YY": Y})
        assert list(request.tensors) == ["Y"]
    assert said(caplog) == [
        "model 'm' gave output 'YY', which its config does not declare; the model declares no other. It is dropped"
    ]


@on_loop
async def test_a_misspelt_output_is_missed_and_the_right_name_guessed(caplog: pytest.LogCaptureFixture) -> None:
    hand = Hand()
    servable = await served(hand)
    for _ in range(2):
        assert not (await answered_with(hand, servable, {"y": Y})).tensors
    assert said(caplog) == [
        "model 'm' gave output 'y', which its config does not declare; did you mean 'Y'? It is dropped",
        "model 'm' gave no output 'Y', which its config declares: answers come without it",
    ]


@on_loop
async def test_who_asks_for_an_output_hears_what_there_was_instead() -> None:
    hand = Hand()
    servable = await served(hand)
    request = await answered_with(hand, servable, {"y": Y}, "Y")
    assert request.error.message.endswith("produced no output 'Y', which the request asks for; it produced 'y'")


@on_loop
async def test_an_answer_of_its_own_is_looked_at_too(caplog: pytest.LogCaptureFixture) -> None:
    hand = Hand()
    servable = await served(hand)
    request = ask(1)
    request.outputs = ["Y"]
    infer(servable, request)
    held = await running(hand)
    held.executed()
    held.answers.replied(0, {"y": Y})
    assert request.error.message.endswith("it produced 'y'")
    assert len(said(caplog)) == 1


@on_loop
async def test_a_stream_may_leave_outputs_out_and_nobody_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    hand = Hand()
    servable = await served(hand, config=model_config(DECOUPLED))
    request = ask(1)
    infer(servable, request)
    held = await running(hand)
    held.reply(0, 1, final=False)
    held.end(0)
    held.executed()
    assert request.answers[0].outputs[0].array.tolist() == answer_of(1)
    assert said(caplog) == []


@on_loop
async def test_a_model_that_makes_up_names_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    hand = Hand()
    servable = await served(hand)
    await answered_with(hand, servable, {"Y": Y, **{f"Z{number}": Y for number in range(1000)}})
    assert len(said(caplog)) == 100
