"""Loading, reloading and unloading ensembles and their members: order, circles, dependents, readiness."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from bident.backends.base import Instance, ModelFiles
from bident.errors import Code, ServeError
from bident.model.config import ModelConfig
from tests.unit.engine.engine_fakes import IO, Echo, answered, ask, infer, on_loop, running, until
from tests.unit.engine.engine_site import Site, times, write_times
from tests.unit.engine.ensemble_stage import ensemble_text, step


def write_ensemble(site: Site, name: str, *steps: str, io: str = IO) -> Path:
    folder = site.models / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "config.pbtxt").write_text(ensemble_text(*steps, io=io))
    return folder


def write_pair(site: Site, name: str = "e") -> None:
    """An ensemble of 'two' and 'three': six times X."""
    write_times(site.models, "two", "2")
    write_times(site.models, "three", "3")
    write_ensemble(site, name, step("two", "X=X", "Y=t"), step("three", "X=t", "Y=Y"))


def states(site: Site) -> dict[str, str]:
    """What each model's version 1 is said to be."""
    found = {}
    for name in site.engine.lifecycle.names():
        for version, noted in site.engine.lifecycle.states(name).items():
            assert version == 1
            found[name] = noted.state.value
    return found


def reason(site: Site, name: str) -> str:
    return site.engine.lifecycle.states(name)[1].reason


async def unloaded(site: Site, *names: str) -> None:
    await until(lambda: all(states(site)[name] == "UNAVAILABLE" for name in names), "an unload")


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
    steps = (step("nosuch", "X=X", "Y=t"), step("two", "X=t", "Y=u"), step("neither", "X=u", "Y=Y"))
    write_ensemble(site, "e", *steps)
    await site.engine.start([])

    error = await site.refusal("e")

    assert error.code is Code.INVALID_ARG
    assert "load failed for model 'e'" in error.message
    assert "ensemble e contains models that are not available or ambiguous: nosuch, neither" in error.message
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


# Members come and go


@on_loop
async def test_a_members_reload_shows_in_the_ensemble_and_a_failed_one_does_not(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_pair(site)
    await site.engine.start(["e"])

    write_times(site.models, "two", "200")
    await site.engine.load("two")
    assert await site.answer("e") == [[600, -600]]

    write_times(site.models, "two", "broken now")
    await site.refusal("two")
    assert site.engine.is_model_ready("e", "")
    assert await site.answer("e") == [[600, -600]]
    assert states(site)["e"] == "READY"


@on_loop
async def test_without_a_member_the_ensemble_stays_and_says_what_it_lacks_until_it_is_back(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_pair(site)
    await site.engine.start(["e"])

    await site.engine.unload("two")

    assert not site.engine.is_model_ready("e", "")
    assert not await site.engine.check_model_ready("e", "")
    error = site.no_answer("e")
    assert error.code is Code.UNAVAILABLE
    assert "ensemble 'e' is not ready: step 0 needs model 'two': Request for unknown model: 'two'" in error.message
    (row,) = [row for row in await site.engine.index(ready=False) if row["name"] == "e"]
    assert row["state"] == "UNAVAILABLE"
    assert "step 0 needs model 'two'" in row["reason"]
    # Somebody wanted it so: the server is no less ready for it.
    await unloaded(site, "two")
    assert site.engine.is_ready
    assert await site.engine.check_ready()

    await site.engine.load("two")

    assert await site.engine.check_model_ready("e", "")
    assert await site.answer("e") == [[6, -6]]


@on_loop
async def test_a_member_that_came_back_different_makes_the_ensemble_unready_with_the_reason(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_pair(site)
    await site.engine.start(["e"])
    config = site.models / "two" / "config.pbtxt"
    text = config.read_text()

    config.write_text(text.replace('name: "X"', 'name: "Z"'))
    site.backend.make = lambda files, config: Echo()
    await site.engine.load("two")

    assert "mapping to non-existing input X in model two" in site.no_answer("e").message
    config.write_text(text)
    site.backend.make = times
    await site.engine.load("two")
    assert await site.answer("e") == [[6, -6]]


@on_loop
async def test_a_request_under_way_gets_its_answer_though_its_members_are_unloaded(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_pair(site)
    echoes: dict[str, Echo] = {}

    def make(files: ModelFiles, config: ModelConfig) -> Instance:
        echoes[config.name] = Echo()
        return echoes[config.name]

    site.backend.make = make
    await site.engine.start(["e"])
    echoes["two"].hold()
    request = ask(7, model="e")
    infer(site.engine.model("e", ""), request)
    await running(echoes["two"])

    await site.engine.unload("e", dependents=True)
    assert not echoes["three"].closed
    echoes["two"].release()
    await answered(request)

    assert request.tensors["Y"].tolist() == [[7, -7]]
    await unloaded(site, "e", "two", "three")
    assert all(echo.closed == 1 for echo in echoes.values())


# Unloading with what was loaded along


@on_loop
async def test_dependents_go_with_the_last_ensemble_that_needs_them_unless_asked_for(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_pair(site)
    write_ensemble(site, "f", step("two", "X=X", "Y=Y"))
    write_times(site.models, "own", "5")
    write_ensemble(site, "g", step("own", "X=X", "Y=t"), step("f", "X=t", "Y=Y"))
    await site.engine.start(["own", "e", "g"])

    await site.engine.unload("e", dependents=True)
    await unloaded(site, "e", "three")
    assert states(site)["two"] == "READY"

    await site.engine.unload("g", dependents=True)
    await unloaded(site, "g", "f", "two")
    assert states(site)["own"] == "READY"


@on_loop
async def test_without_the_word_members_stay(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_pair(site)
    await site.engine.start(["e"])

    await site.engine.unload("e")

    await unloaded(site, "e")
    assert (states(site)["two"], states(site)["three"]) == ("READY", "READY")


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


# What an ensemble takes from its members


@on_loop
async def test_labels_come_from_the_member_that_makes_the_output(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_pair(site)
    inputs, outputs = IO.split("output")
    labelled = inputs + "output" + outputs.replace("] }", '], label_filename: "names.txt" }')
    folder = site.models / "three"
    (folder / "config.pbtxt").write_text(f'backend: "fake" max_batch_size: 8 {labelled} dynamic_batching {{ }}')
    (folder / "names.txt").write_text("cat\ndog\n")
    write_ensemble(site, "outer", step("e", "X=X", "Y=Y"))
    await site.engine.start(["outer"])
    await site.answer("outer")
    labels: Any = site.engine.model("outer", "").labels
    assert labels == {"Y": ["cat", "dog"]}

    (folder / "names.txt").write_text("hen\nfox\n")
    await site.engine.load("three")
    await site.answer("outer")

    assert site.engine.model("outer", "").labels == {"Y": ["hen", "fox"]}


@on_loop
async def test_a_bad_number_in_a_request_is_no_reason_to_forget_the_ensemble(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_pair(site)
    await site.engine.start(["e"])

    with pytest.raises(ServeError, match="batch-size must be <= 8"):
        site.engine.infer(ask(1, 9, model="e"))

    assert await site.answer("e") == [[6, -6]]
