"""Ensembles whose members come and go: readiness, reloads, unloading with what was loaded along, labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bident.backends.base import Instance, ModelFiles
from bident.errors import Code, ServeError
from bident.model.config import ModelConfig
from tests.unit.engine.engine_fakes import IO, Echo, answered, ask, infer, on_loop, running
from tests.unit.engine.engine_site import Site, times, write_times
from tests.unit.engine.ensemble_site import states, unloaded, write_ensemble, write_pair
from tests.unit.engine.ensemble_stage import step

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
