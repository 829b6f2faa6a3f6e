"""Instances that die while they have requests, and clients that go while theirs are executed."""

from __future__ import annotations

import asyncio

import pytest

from bident.engine import servable as servable_module
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


# Deaths


@on_loop
async def test_a_death_fails_what_runs_and_what_waits_is_run_by_the_next_worker() -> None:
    hand = Hand()
    servable = await served(hand)
    lost, kept = ask(1), ask(2)
    infer(servable, lost)
    held = await running(hand)
    infer(servable, kept)
    await turns()
    hand.die(held)
    assert lost.error is BROKEN
    await turns()
    assert not servable.is_available
    assert "it was killed" in servable.reason
    assert not kept.is_answered
    hand.come_back()
    (await running(hand, 2)).finish()
    assert kept.tensors["Y"].tolist() == answer_of(2)
    assert failures(servable) == {"BACKEND": 1}


@on_loop
async def test_the_other_instance_goes_on() -> None:
    hands = [Hand(), Hand()]
    servable = await served(*hands)
    hands[0].go()
    infer(servable, ask(1))
    await running(hands[1])
    assert not hands[0].batches
    assert servable.is_available
    assert servable.reason.startswith("1 of 2 instances")


@on_loop
async def test_an_idle_instance_that_goes_is_given_nothing() -> None:
    hand = Hand()
    servable = await served(hand)
    infer(servable, ask(1))
    hand.go()
    await turns()
    assert not hand.batches
    hand.come_back()
    await running(hand)


@on_loop
async def test_requests_wait_for_a_worker_only_so_long_and_are_told_why() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bident.engine.absence._HOLD_NS", 50_000_000)
        hand = Hand()
        servable = await served(hand)
        hand.go("its process was killed by SIGKILL")
    waiting = ask(1)
    infer(servable, waiting)
    await turns()
    assert not waiting.is_answered
    await answered(waiting)
    assert waiting.error.code is Code.UNAVAILABLE
    assert "model 'm' is not ready" in waiting.error.message
    assert "its process was killed by SIGKILL; try again later" in waiting.error.message
    with pytest.raises(ServeError, match="is not ready"):
        servable.infer(ask(2))
    assert failures(servable) == {"REJECTED": 2}
    hand.come_back()
    infer(servable, ask(3))
    (await running(hand)).finish()


@on_loop
async def test_instances_that_will_not_come_back_refuse_at_once() -> None:
    hands = [Hand(), Hand()]
    servable = await served(*hands)
    waiting = ask(1)
    hands[0].go("started in vain: restart the server", lost=True)
    hands[1].go("waiting", lost=False)
    infer(servable, waiting)
    await turns()
    assert not waiting.is_answered
    hands[1].go("started in vain: restart the server", lost=True)
    await answered(waiting)
    assert waiting.error.message.endswith("none of its instances is: started in vain: restart the server")
    assert "load it again" not in waiting.error.message, "not every server may load"


@on_loop
async def test_refusals_say_how_things_stand_now_and_not_how_the_outage_began() -> None:
    hand = Hand()
    servable = await served(hand)
    hand.go("killed", lost=True)
    first = ask(1)
    infer(servable, first)
    await answered(first)
    assert first.error.message.endswith("is: killed")
    hand.go("starting", lost=False)
    with pytest.raises(ServeError, match=r"is: starting; try again later$"):
        servable.infer(ask(2))
    hand.go("given up: restart the server", lost=True)
    with pytest.raises(ServeError, match=r"is: given up: restart the server$"):
        servable.infer(ask(3))


@on_loop
async def test_a_lost_worker_comes_back_to_a_batch_it_no_longer_knows() -> None:
    """The end of the old batch, told after the new worker has come, must not free it twice."""
    hand = Hand()
    servable = await served(hand)
    infer(servable, ask(1))
    held = await running(hand)
    hand.die(held)
    hand.come_back()
    infer(servable, ask(2))
    await running(hand, 2)
    infer(servable, ask(3))
    await turns()
    assert hand.firsts == [[1], [2]]


@on_loop
async def test_closing_waits_for_what_runs() -> None:
    hand = Hand()
    servable = await served(hand)
    request = ask(1)
    infer(servable, request)
    held = await running(hand)
    closed = asyncio.Event()
    servable.retire(closed.set)
    await turns()
    assert not closed.is_set()
    held.finish()
    await asyncio.wait_for(closed.wait(), 10)
    assert request.tensors["Y"].tolist() == answer_of(1)


# Clients that go


@on_loop
async def test_a_client_that_has_gone_is_told_of_once() -> None:
    hand = Hand()
    servable = await served(hand)
    requests = [ask(1), ask(2), ask(3)]
    infer(servable, *requests)
    held = await running(hand)
    requests[1].cancelled = True
    servable.scheduler.discard_cancelled()
    servable.scheduler.discard_cancelled()
    requests[0].cancelled = True
    servable.scheduler.discard_cancelled()
    assert hand.cancelled == [[1], [0]]
    held.finish()
    servable.scheduler.discard_cancelled()
    assert hand.cancelled == [[1], [0]]


@on_loop
async def test_what_still_waits_is_dropped_and_counted() -> None:
    hand = Hand()
    servable = await served(hand)
    infer(servable, ask(1))
    held = await running(hand)
    gone, staying = ask(2), ask(3)
    infer(servable, gone, staying)
    await turns()
    gone.cancelled = True
    servable.scheduler.discard_cancelled()
    assert gone.error.code is Code.CANCELLED
    held.finish()
    await running(hand, 2)
    assert hand.firsts == [[1], [3]]
    assert failures(servable) == {"CANCELED": 1}


@on_loop
async def test_a_stream_is_told_after_its_execute_has_returned() -> None:
    hand = Hand()
    servable = await served(hand, config=model_config(DECOUPLED, batch=0))
    request = Asked(tensor("X", [1, -1], (2,)))
    infer(servable, request)
    held = await running(hand)
    held.executed()
    request.cancelled = True
    servable.scheduler.discard_cancelled()
    assert hand.cancelled == [[0]]


# Unloading what hangs


@on_loop
async def test_an_unload_waits_for_a_client_but_not_for_a_model_that_nobody_waits_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(servable_module, "DESERTED_SECONDS", 0.02)
    hand = Hand()
    servable = await served(hand, config=model_config(DECOUPLED, batch=0))
    gone, staying = (Asked(tensor("X", [value, -value], (2,))) for value in (1, 2))
    infer(servable, gone)
    await running(hand)
    hand.batches[0].executed()
    infer(servable, staying)
    await running(hand, 2)
    closed = asyncio.Event()
    servable.retire(closed.set)
    gone.cancelled = True
    servable.scheduler.discard_cancelled()
    looked = 0

    def look(*arguments: object) -> None:
        nonlocal looked
        looked += 1
        look_again(*arguments)

    look_again = servable._look_for_waiting
    monkeypatch.setattr(servable, "_look_for_waiting", look)
    await until(lambda: looked >= 4, "some looks")
    assert not closed.is_set(), "somebody waits"

    staying.cancelled = True
    servable.scheduler.discard_cancelled()

    await asyncio.wait_for(closed.wait(), 10)
    assert hand.closed == 1
    assert "'m' version 1 does not end requests that nobody waits for any more" in caplog.text


@on_loop
async def test_what_has_been_answered_is_not_waited_for_with_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servable_module, "DESERTED_SECONDS", 0.02)
    hand = Hand()
    servable = await served(hand)
    answered_one, gone = ask(1), ask(2)
    infer(servable, answered_one, gone)
    held = await running(hand)
    held.reply(0, 1)
    gone.cancelled = True
    servable.scheduler.discard_cancelled()
    closed = asyncio.Event()
    servable.retire(closed.set)
    await asyncio.wait_for(closed.wait(), 10)
    assert answered_one.tensors["Y"].tolist() == answer_of(1)
