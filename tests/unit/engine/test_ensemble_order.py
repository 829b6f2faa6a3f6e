"""Loading ensembles after what they are made of: at the start, by name, and in polling; circles."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from bident.errors import Code
from tests.unit.engine.engine_fakes import IO, on_loop
from tests.unit.engine.engine_site import Site, write_times
from tests.unit.engine.ensemble_site import reason, states, write_ensemble, write_pair
from tests.unit.engine.ensemble_stage import step


@on_loop
async def test_at_the_start_members_are_loaded_before_what_is_made_of_them(tmp_path: Path) -> None:
    site = Site(tmp_path, "none")
    write_pair(site, "a_comes_first")
    write_ensemble(site, "outer", step("a_comes_first", "X=X", "Y=t"), step("two", "X=t", "Y=Y"))

    assert await site.engine.start(None) == {}

    assert await site.answer("a_comes_first") == [[6, -6]]
    assert await site.answer("outer") == [[12, -12]]
    assert len(site.backend.made) == 2


@on_loop
async def test_a_named_ensemble_brings_its_members_at_the_start(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_pair(site)
    write_times(site.models, "other", "9")

    assert await site.engine.start(["e"]) == {}

    assert [servable.name for servable in site.engine.lifecycle.servables()] == ["e", "three", "two"]


@on_loop
async def test_loading_an_ensemble_loads_what_is_not_loaded_and_reloads_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_pair(site)
    await site.engine.start(["two"])
    write_times(site.models, "two", "20")

    await site.engine.load("e")

    assert await site.answer("e") == [[6, -6]]
    assert len(site.backend.made) == 2


@on_loop
async def test_a_member_is_loaded_once_for_all_that_need_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_pair(site)
    write_ensemble(site, "f", step("two", "X=X", "Y=Y"))
    await site.engine.start([])

    await asyncio.gather(site.engine.load("e"), site.engine.load("f"), site.engine.load("e"))

    assert sorted(states(site)) == ["e", "f", "three", "two"]
    assert len(site.backend.made) == 2


@on_loop
async def test_loading_waits_for_a_member_that_somebody_else_is_loading(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_pair(site)
    await site.engine.start([])

    await asyncio.gather(site.engine.load("two"), site.engine.load("three"), site.engine.load("e"))

    assert await site.answer("e") == [[6, -6]]


@on_loop
async def test_members_that_are_not_there_are_all_named(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "two", "2")
    steps = (step("twoo", "X=X", "Y=t"), step("two", "X=t", "Y=u"), step("neither", "X=u", "Y=Y"))
    write_ensemble(site, "e", *steps)
    await site.engine.start([])

    error = await site.refusal("e")

    assert error.code is Code.INVALID_ARG
    assert "load failed for model 'e'" in error.message
    assert "ensemble e contains models that are not available or ambiguous: twoo, neither" in error.message
    assert "; 'twoo': did you mean 'two'?; 'neither': there is 'two'" in error.message
    assert sorted(states(site)) == ["e", "two"]


@on_loop
async def test_a_member_that_cannot_be_loaded_is_named_with_its_reason(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_pair(site)
    write_times(site.models, "two", "no number")

    failures = await site.engine.start(["e"])

    assert list(failures) == ["e"]
    message = failures["e"].message
    assert "ensemble 'e' depends on 'two' which has no loaded version. Model 'two' loading failed with" in message
    assert "could not convert string to float" in message


@on_loop
async def test_the_version_of_a_step_is_honoured(tmp_path: Path) -> None:
    site = Site(tmp_path)
    policy = "version_policy { all { } } dynamic_batching { }"
    write_times(site.models, "m", "2", policy, version=1)
    write_times(site.models, "m", "3", policy, version=3)
    for name, version in (("old", 1), ("newest", -1), ("absent", 2)):
        write_ensemble(site, name, step("m", "X=X", "Y=Y", version))

    failures = await site.engine.start(None)

    assert await site.answer("old") == [[2, -2]]
    assert await site.answer("newest") == [[3, -3]]
    assert "ensemble 'absent' depends on 'm' whose required version 2 is not loaded" in failures["absent"].message
    assert "loaded: 1, 3" in failures["absent"].message


@on_loop
async def test_what_does_not_fit_its_members_is_refused_at_load(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "two", "2")
    write_ensemble(site, "e", step("two", "X=X", "Y=Y"), io=IO.replace("dims: [ 2 ]", "dims: [ 3 ]", 1))

    failures = await site.engine.start(None)

    assert "inconsistent shape: [-1,3] is inferred from model e while [-1,2]" in failures["e"].message
    assert str(site.models / "e" / "config.pbtxt") in failures["e"].message
    assert site.engine.is_model_ready("two", "")


# Circles


@on_loop
async def test_ensembles_that_are_made_of_each_other_are_refused_each_by_name(tmp_path: Path) -> None:
    site = Site(tmp_path, strict=False)
    write_times(site.models, "two", "2")
    write_ensemble(site, "a", step("b", "X=X", "Y=Y"))
    write_ensemble(site, "b", step("two", "X=X", "Y=t"), step("c", "X=t", "Y=Y"))
    write_ensemble(site, "c", step("a", "X=X", "Y=Y"))
    write_ensemble(site, "self", step("self", "X=X", "Y=Y"))
    write_ensemble(site, "before", step("a", "X=X", "Y=Y"))

    failures = await asyncio.wait_for(site.engine.start(None), 5)

    circular = "circular dependency between ensembles"
    assert f"{circular}: a -> ... -> c -> a" in failures["a"].message
    assert f"{circular}: b -> ... -> a -> b" in failures["b"].message
    assert f"{circular}: c -> ... -> b -> c" in failures["c"].message
    assert f"{circular}: self -> ... -> self -> self" in failures["self"].message
    assert "depends on 'a' which has no loaded version" in failures["before"].message
    assert site.engine.is_model_ready("two", "")


@on_loop
async def test_a_circle_is_found_when_one_of_it_is_loaded_by_name_or_changed_into_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "two", "2")
    write_ensemble(site, "a", step("two", "X=X", "Y=Y"))
    write_ensemble(site, "b", step("a", "X=X", "Y=Y"))
    await site.engine.start([])
    await site.engine.load("b")

    write_ensemble(site, "a", step("b", "X=X", "Y=Y"))
    error = await asyncio.wait_for(site.refusal("a"), 5)

    assert "circular dependency between ensembles: a -> ... -> b -> a" in error.message
    assert await site.answer("b") == [[2, -2]]


# Polling


@on_loop
async def test_polling_follows_ensembles_and_members_in_any_order(tmp_path: Path) -> None:
    site = Site(tmp_path, "poll", strict=False)
    write_ensemble(site, "e", step("two", "X=X", "Y=t"), step("three", "X=t", "Y=Y"))
    await site.engine.start(None)
    assert "not available or ambiguous: two, three" in reason(site, "e")

    write_times(site.models, "two", "2")
    await site.engine.poll()
    assert "not available or ambiguous: three" in reason(site, "e")

    write_times(site.models, "three", "3")
    await site.engine.poll()
    assert await site.answer("e") == [[6, -6]]

    shutil.rmtree(site.models / "two")
    await site.engine.poll()
    assert "step 0 needs model 'two'" in site.no_answer("e").message

    write_times(site.models, "two", "5")
    await site.engine.poll()
    assert await site.answer("e") == [[15, -15]]

    write_ensemble(site, "e", step("two", "X=X", "Y=Y"))
    await site.engine.poll()
    assert await site.answer("e") == [[5, -5]]


@on_loop
async def test_polling_does_not_try_again_what_has_not_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "poll", strict=False)
    write_ensemble(site, "e", step("nosuch", "X=X", "Y=Y"))
    write_ensemble(site, "self", step("self", "X=X", "Y=Y"))
    await site.engine.start(None)
    caplog.clear()

    await site.engine.poll()

    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@on_loop
async def test_a_new_ensemble_and_its_new_members_come_in_one_look(tmp_path: Path) -> None:
    site = Site(tmp_path, "poll")
    await site.engine.start(None)
    write_pair(site, "a_comes_first")

    await site.engine.poll()

    assert await site.answer("a_comes_first") == [[6, -6]]
