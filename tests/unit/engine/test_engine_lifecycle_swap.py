"""Reload, drain, unload: no request is lost, none is answered by a mix."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bident.errors import Code, ServeError
from tests.unit.engine.engine_fakes import (
    BATCHING,
    INLINE,
    THREAD,
    Asked,
    Echo,
    answer_of,
    answered,
    ask,
    on_loop,
    turns,
    until,
)
from tests.unit.engine.engine_house import ALL_VERSIONS, Constant, Gate, House, broken

# Swapping


@pytest.mark.parametrize("lane", [INLINE, THREAD])
@on_loop
async def test_reloads_under_traffic_drop_nothing_and_mix_nothing(tmp_path: Path, lane: str) -> None:
    house = House(tmp_path)
    house.backend.make = lambda files, config: Constant(len(house.backend.made))
    await house.load(text=BATCHING + lane)
    requests: list[Asked] = []
    reloads = 8

    async def reload() -> None:
        for _ in range(reloads):
            await house.load(text=BATCHING + lane)

    reloading = asyncio.ensure_future(reload())
    answered_so_far = 0
    while not reloading.done():
        while answered_so_far < len(requests) and requests[answered_so_far].answers:
            answered_so_far += 1
        if len(requests) - answered_so_far < 50:  # constant traffic, but no backlog that outlasts the reloads
            for rows in (1, 3):
                request = ask(7, rows=rows)
                house.infer(request)
                requests.append(request)
        await asyncio.sleep(0)
    await reloading
    last = ask(7)
    house.infer(last)
    await answered(*requests, last)

    for request in requests:
        values = {tuple(row) for row in request.tensors["Y"].tolist()}
        assert len(values) == 1
    answers = [request.tensors["Y"][0, 0] for request in requests]
    assert answers == sorted(answers)  # who asked later was never answered by an older model
    assert last.tensors["Y"].tolist() == [[reloads, 0]]
    made = house.backend.made
    await until(lambda: [instance.closed for instance in made] == [1] * reloads + [0], "the old ones' end")  # type: ignore[attr-defined]
    stats = house.lifecycle.find("m", "").stats
    assert (stats.success.count, stats.fail.count) == (len(requests) + 1, 0)
    assert house.states() == {1: "READY"}


@on_loop
async def test_what_the_old_model_has_accepted_it_answers(tmp_path: Path) -> None:
    house = House(tmp_path)
    old = Echo()
    house.backend.make = lambda files, config: old
    await house.load(text=THREAD)
    old.hold()
    accepted = [ask(1), ask(2)]
    for request in accepted:
        house.infer(request)
    await until(lambda: old.running, "an execution")
    house.backend.make = lambda files, config: Echo(lambda inputs: {"Y": inputs["X"] * 100})

    await house.load(text=THREAD)
    after = ask(3)
    house.infer(after)
    await answered(after)

    assert after.tensors["Y"].tolist() == [[300, -300]]
    assert not any(request.is_answered for request in accepted)
    assert house.lifecycle.in_flight() == {"m": 1}
    assert [servable.scheduler.pending for servable in house.lifecycle.holders("m")] == [0, 1]
    old.release()
    await answered(*accepted)
    assert [request.tensors["Y"].tolist() for request in accepted] == [answer_of(1), answer_of(2)]
    await until(lambda: old.closed, "the end of the old model")
    await until(lambda: not house.lifecycle.in_flight(), "nothing in flight")
    assert len(house.lifecycle.holders("m")) == 1


@on_loop
async def test_a_reload_with_other_versions_swaps_them_all_at_once(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.load(text=BATCHING + ALL_VERSIONS, versions=(1, 2))
    gate = Gate()
    house.backend.make = gate
    loading = asyncio.ensure_future(
        house.load(text="version_policy { specific { versions: [ 2, 3 ] } }", versions=(1, 2, 3))
    )
    await until(lambda: gate.waiting, "the load")

    assert house.states() == {1: "READY", 2: "READY", 3: "LOADING"}
    assert house.lifecycle.find("m", "").version == 2
    gate.open()
    await loading

    assert house.lifecycle.versions("m") == [2, 3]
    assert house.lifecycle.find("m", "").version == 3
    await until(lambda: house.states() == {1: "UNAVAILABLE", 2: "READY", 3: "READY"}, "version 1 gone")
    assert house.reasons()[1] == "unloaded"
    assert house.lifecycle.all_ready()


@on_loop
async def test_figures_survive_a_reload_and_end_with_an_unload(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.load()
    for _ in range(2):
        request = ask(1)
        house.infer(request)
        await answered(request)
        await house.load()
    assert house.lifecycle.find("m", "").stats.success.count == 2

    await house.lifecycle.unload("m")
    await house.load()

    assert house.lifecycle.find("m", "").stats.success.count == 0


# Unloading


@on_loop
async def test_unloading_drains_and_then_closes(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.load(text=THREAD)
    instance = house.backend.made[0]
    assert isinstance(instance, Echo)
    instance.hold()
    accepted = [ask(1), ask(2)]
    for request in accepted:
        house.infer(request)
    await until(lambda: instance.running, "an execution")

    await house.lifecycle.unload("m")

    assert (house.states(), house.lifecycle.in_flight()) == ({1: "UNLOADING"}, {"m": 1})
    assert house.lifecycle.all_ready()
    assert house.lifecycle.servables() == []
    assert house.absent(version="1").code is Code.UNAVAILABLE
    assert "not at ready state" in house.absent(version="1").message
    assert house.absent().code is Code.NOT_FOUND
    instance.release()
    await answered(*accepted)
    await until(lambda: house.states() == {1: "UNAVAILABLE"}, "the end")

    assert [request.tensors["Y"].tolist() for request in accepted] == [answer_of(1), answer_of(2)]
    assert (house.reasons(), instance.closed) == ({1: "unloaded"}, 1)
    assert house.lifecycle.all_ready()
    assert (house.absent().code, "'m' is not found" in house.absent().message) == (Code.NOT_FOUND, True)
    assert house.lifecycle.in_flight() == {}


@on_loop
async def test_unloading_what_is_not_loaded_does_nothing(tmp_path: Path) -> None:
    house = House(tmp_path)

    await house.lifecycle.unload("x")

    assert house.lifecycle.names() == []
    assert house.absent("x").code is Code.INVALID_ARG


@on_loop
async def test_unloading_a_model_that_failed_makes_the_server_ready_again(tmp_path: Path) -> None:
    house = House(tmp_path, broken)
    await house.refusal()

    await house.lifecycle.unload("m")

    assert (house.states(), house.reasons()) == ({1: "UNAVAILABLE"}, {1: "unloaded"})
    assert house.lifecycle.all_ready()


@on_loop
async def test_a_version_is_unloaded_when_the_last_of_its_copies_has_ended(tmp_path: Path) -> None:
    house = House(tmp_path)
    held = [Echo(), Echo()]
    requests = [ask(1), ask(2)]
    for instance, request in zip(held, requests, strict=True):
        house.backend.make = lambda files, config, instance=instance: instance  # type: ignore[misc]
        await house.load(text=THREAD)
        instance.hold()
        house.infer(request)
        await until(lambda instance=instance: instance.running, "an execution")
        await house.lifecycle.unload("m")

    held[0].release()
    await until(lambda: held[0].closed, "the end of the first copy")
    await until(lambda: house.lifecycle.in_flight() == {"m": 1}, "one copy left")
    assert house.states() == {1: "UNLOADING"}
    held[1].release()
    await until(lambda: house.states() == {1: "UNAVAILABLE"}, "the end of the second")
    assert all(request.is_answered for request in requests)


# Several at once


@on_loop
async def test_operations_on_one_model_take_turns(tmp_path: Path) -> None:
    gate = Gate()
    house = House(tmp_path, gate)
    loading = asyncio.ensure_future(house.load())
    await until(lambda: gate.waiting, "the load")
    unloading = asyncio.ensure_future(house.lifecycle.unload("m"))
    loading_again = asyncio.ensure_future(house.load())
    await turns()

    assert not unloading.done()
    gate.open()
    await asyncio.gather(loading, unloading, loading_again)

    assert house.states() == {1: "READY"}
    await until(lambda: house.backend.made[0].closed, "the end of the first")  # type: ignore[attr-defined]
    assert [instance.closed for instance in house.backend.made] == [1, 0]  # type: ignore[attr-defined]


@on_loop
async def test_any_crowd_of_loads_and_unloads_ends_in_the_state_of_the_last(tmp_path: Path) -> None:
    house = House(tmp_path)
    folder = house.folder()
    jobs = [
        asyncio.ensure_future(house.lifecycle.load(folder) if index % 3 else house.lifecycle.unload("m"))
        for index in range(20)
    ]
    await asyncio.gather(*jobs)

    assert house.states() == {1: "READY"}
    made = house.backend.made
    await until(lambda: sum(instance.closed for instance in made) == len(made) - 1, "all but the last closed")  # type: ignore[attr-defined]
    assert made[-1].closed == 0  # type: ignore[attr-defined]
    request = ask(1)
    house.infer(request)
    await answered(request)


@on_loop
async def test_a_model_that_is_busy_elsewhere_does_not_hold_up_another(tmp_path: Path) -> None:
    gate = Gate()
    house = House(tmp_path, lambda files, config: gate(files, config) if config.name == "slow" else Echo())
    slow = asyncio.ensure_future(house.load("slow"))
    await until(lambda: gate.waiting, "the slow load")

    await house.load("quick")
    request = ask(1, model="quick")
    house.infer(request)
    await answered(request)

    assert not slow.done()
    gate.open()
    await slow


# Forgetting


@on_loop
async def test_a_model_is_forgotten_only_when_nothing_of_it_is_left(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.load(text=THREAD)
    house.lifecycle.forget("m")
    assert house.lifecycle.names() == ["m"]
    instance = house.backend.made[0]
    assert isinstance(instance, Echo)
    instance.hold()
    request = ask(1)
    house.infer(request)
    await until(lambda: instance.running, "an execution")
    await house.lifecycle.unload("m")

    house.lifecycle.forget("m")
    assert house.lifecycle.names() == ["m"]
    instance.release()
    await until(lambda: not house.lifecycle.in_flight(), "the end")
    house.lifecycle.forget("m")

    assert house.lifecycle.names() == []
    assert house.absent().code is Code.INVALID_ARG


@on_loop
async def test_a_model_that_somebody_is_about_to_load_is_not_forgotten(tmp_path: Path) -> None:
    gate = Gate()
    house = House(tmp_path, lambda files, config: broken(files, config) if gate(files, config) else Echo())
    failing = asyncio.ensure_future(house.refusal())
    await until(lambda: gate.waiting, "the load")

    async def unload_and_forget() -> None:
        await house.lifecycle.unload("m")
        house.lifecycle.forget("m")

    forgetting = asyncio.ensure_future(unload_and_forget())
    await turns()
    loading = asyncio.ensure_future(house.load())
    await turns()
    house.backend.make = lambda files, config: Echo()
    gate.open()
    await asyncio.gather(failing, forgetting, loading)

    assert house.lifecycle.names() == ["m"]
    assert [servable.name for servable in house.lifecycle.servables()] == ["m"]


# The gate that several servers of one model pass together


@on_loop
async def test_a_model_goes_through_the_gate_when_it_is_ready_and_before_it_serves(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.load()
    old = house.lifecycle.find("m", "")
    seen: list[object] = []

    async def gate() -> None:
        seen.append((house.lifecycle.find("m", "") is old, len(house.backend.made)))

    await house.lifecycle.load(house.folder(), gate=gate)
    assert seen == [(True, 2)]
    assert house.lifecycle.find("m", "") is not old


@on_loop
async def test_a_gate_that_stays_shut_leaves_the_old_version_serving_and_nothing_else(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.load()
    old = house.lifecycle.find("m", "")

    async def gate() -> None:
        raise ServeError(Code.INTERNAL, "another could not")

    with pytest.raises(ServeError, match="another could not"):
        await house.lifecycle.load(house.folder(), gate=gate)
    assert house.lifecycle.find("m", "") is old
    assert old.is_available
    with pytest.raises(ServeError, match="another could not"):
        await house.lifecycle.load(house.folder("fresh"), gate=gate)
    assert house.states("fresh") == {1: "UNAVAILABLE"}
    assert [instance.closed for instance in house.backend.made] == [0, 1, 1]  # type: ignore[attr-defined]
