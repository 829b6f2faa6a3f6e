"""Warmups that take long, or do not end, hold up nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.engine.engine_fakes import BATCHING, Echo, model_config, on_loop, servable_of, turns, until
from tests.unit.engine.engine_hands import Hand
from tests.unit.engine.engine_house import House
from tests.unit.engine.test_warmup import sample, warmed


@on_loop
async def test_others_get_their_turn_between_the_runs_of_an_instance_that_answers_at_once() -> None:
    hand = Hand()
    servable = servable_of(model_config(BATCHING), hand)  # type: ignore[arg-type]
    await servable.start()
    take, taken_before = hand.execute_requests, []

    def answer_at_once(*batch: Any) -> None:
        take(*batch)
        taken_before.append(len(turned))
        hand.batches[-1].finish()

    hand.execute_requests = answer_at_once  # type: ignore[method-assign]
    turned: list[None] = []
    warming = asyncio.ensure_future(warmed(servable, sample(more="count: 50")))
    while not warming.done():
        await asyncio.sleep(0)
        turned.append(None)

    assert len(set(taken_before)) == len(taken_before) == 50


@on_loop
async def test_a_warmup_that_hangs_holds_up_no_other_load(tmp_path: Path) -> None:
    held = Echo()
    held.hold()
    house = House(tmp_path, lambda files, config: held if config.name.startswith("hangs") else Echo(), threads=8)
    hanging = [asyncio.ensure_future(house.load(f"hangs{index}", BATCHING + sample())) for index in range(6)]
    await until(lambda: held.running == 6)

    await house.load("quick", BATCHING + sample())

    assert house.states("quick") == {1: "READY"}
    held.release()
    await asyncio.gather(*hanging)


@on_loop
async def test_a_stop_does_not_wait_for_a_warmup_that_hangs(tmp_path: Path) -> None:
    held = Echo()
    held.hold()
    house = House(tmp_path, lambda files, config: held)
    loading = asyncio.ensure_future(house.load(text=BATCHING + sample()))
    await until(lambda: held.running)

    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading

    assert house.lifecycle.close(), "it is told that a thread is still inside a model"
    assert not held.closed, "what the thread uses is not taken from it"
    held.release()


@on_loop
async def test_a_stop_waits_for_as_long_as_it_may_until_what_was_being_warmed_up_is_closed(tmp_path: Path) -> None:
    hand = Hand()
    closing = asyncio.Event()
    close = hand.close

    async def close_slowly() -> None:
        await closing.wait()
        await close()

    hand.close = close_slowly  # type: ignore[method-assign]
    house = House(tmp_path, lambda files, config: hand)  # type: ignore[arg-type, return-value]
    loading = asyncio.ensure_future(house.load(text=BATCHING + sample()))
    await until(lambda: hand.batches)

    loading.cancel()
    assert await house.lifecycle.retire_all(0.0) == ["m"]
    stopping = asyncio.ensure_future(house.lifecycle.retire_all(20.0))
    await turns()
    closing.set()
    assert await stopping == []
    assert hand.closed
    assert loading.cancelled()
