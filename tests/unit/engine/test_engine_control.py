"""Model control: load, unload, overlays, polling."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from bident.errors import Code, ServeError
from bident.model.repository import Repository
from tests.unit.engine.engine_fakes import (
    answer_of,
    on_loop,
    until,
)
from tests.unit.engine.engine_site import Site, times, write_times

# Model control


@pytest.mark.parametrize("mode", ["none", "poll"])
@on_loop
async def test_models_are_controlled_only_in_explicit_mode(tmp_path: Path, mode: str) -> None:
    site = Site(tmp_path, mode)
    write_times(site.models, "m", "1")
    await site.engine.start(None)

    for control in (site.engine.load, site.engine.unload):
        with pytest.raises(ServeError, match="explicit model load / unload is not allowed") as caught:
            await control("m")
        assert caught.value.code is Code.UNAVAILABLE
    assert await site.answer() == answer_of(1)


@on_loop
async def test_only_the_named_models_are_loaded_at_the_start(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for name in "abc":
        write_times(site.models, name, "1")

    failures = await site.engine.start(["a", "c", "missing"])

    assert [servable.name for servable in site.engine.lifecycle.servables()] == ["a", "c"]
    assert list(failures) == ["missing"]
    assert failures["missing"].code is Code.INTERNAL
    assert "failed to load 'missing', failed to poll from model repository" in failures["missing"].message


@on_loop
async def test_load_reloads_what_has_changed_and_only_that(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "1")
    await site.engine.start([])
    await site.engine.load("m")
    await site.engine.load("m")
    assert len(site.backend.made) == 1

    write_times(site.models, "m", "22")
    await site.engine.load("m")

    assert len(site.backend.made) == 2
    assert await site.answer() == [[22, -22]]


@on_loop
async def test_a_model_that_failed_is_tried_again_though_nothing_changed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "1")
    site.backend.make = lambda files, config: (_ for _ in ()).throw(OSError("the share is away"))
    await site.engine.start([])
    assert "OSError: the share is away" in (await site.refusal("m")).message

    site.backend.make = times
    await site.engine.load("m")

    assert await site.answer() == answer_of(1)


@pytest.mark.parametrize("name", ["", "  ", "../m", "a/b", "a\\b"])
@on_loop
async def test_names_that_could_lead_out_of_the_repository_are_refused(tmp_path: Path, name: str) -> None:
    site = Site(tmp_path)
    await site.engine.start([])

    for control in (site.engine.load, site.engine.unload):
        with pytest.raises(ServeError) as caught:
            await control(name)
        assert caught.value.code is Code.INVALID_ARG


@on_loop
async def test_unloading_a_name_that_nobody_knows_succeeds(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.engine.start([])

    await site.engine.unload("nobody")

    assert await site.engine.index(ready=False) == []


# Overlays: models that come with the request

CONFIG = json.dumps(
    {
        "backend": "fake",
        "max_batch_size": 2,
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [2]}],
        "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [2]}],
    }
)


@on_loop
async def test_a_config_sent_along_takes_effect_until_a_plain_load(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "5")
    await site.engine.start(None)

    await site.engine.load("m", CONFIG)
    assert site.engine.model("m", "").config.max_batch_size == 2
    assert await site.answer() == [[5, -5]]
    await site.engine.load("m")

    assert site.engine.model("m", "").config.max_batch_size == 8
    assert await site.answer() == [[5, -5]]


@on_loop
async def test_files_sent_along_replace_the_folder_until_a_plain_load(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "5")
    await site.engine.start(None)

    await site.engine.load("m", CONFIG, {"3/factor": b"7"})
    assert await site.answer() == [[7, -7]]
    assert site.engine.lifecycle.versions("m") == [3]
    first = site.overlay_folders()
    assert len(first) == 1
    await site.engine.load("m", CONFIG, {"3/factor": b"8"})
    assert await site.answer() == [[8, -8]]
    await until(lambda: len(site.overlay_folders()) == 1, "the first overlay removed")
    assert site.overlay_folders() != first

    await site.engine.load("m")

    assert await site.answer() == [[5, -5]]
    assert site.engine.lifecycle.versions("m") == [1]
    await until(lambda: site.overlay_folders() == [], "the second overlay removed")


@on_loop
async def test_a_model_may_come_wholly_from_the_request(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.engine.start(None)

    await site.engine.load("new", CONFIG, {"1/factor": b"9"})

    assert await site.answer("new") == [[9, -9]]
    assert await site.engine.index(ready=False) == [{"name": "new", "version": "1", "state": "READY"}]
    await site.engine.unload("new")
    await until(lambda: site.overlay_folders() == [], "the overlay removed")


@on_loop
async def test_an_overlay_that_fails_leaves_what_is_served_and_nothing_on_disk(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "5")
    await site.engine.start(None)
    await site.engine.load("m", CONFIG, {"1/factor": b"7"})
    kept = site.overlay_folders()

    for config, files in (
        (CONFIG, {"1/factor": b"no number"}),
        ("{", {"1/factor": b"1"}),
        (None, {"1/factor": b"1"}),
        (CONFIG, {"../1/factor": b"1"}),
        (CONFIG.replace("fake", "nope"), None),
    ):
        error = await site.refusal("m", config, files)
        assert error.code is Code.INVALID_ARG, (config, files)
        assert await site.answer() == [[7, -7]]
    assert site.overlay_folders() == kept
    assert site.engine.is_ready


@on_loop
async def test_an_overlay_for_a_model_that_is_nowhere_needs_its_files(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.engine.start(None)

    error = await site.refusal("new", CONFIG)

    assert error.code is Code.INTERNAL
    assert "failed to load 'new', failed to poll from model repository" in error.message


@on_loop
async def test_a_plain_load_that_fails_keeps_the_overlay(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "no number")
    await site.engine.start([])
    await site.engine.load("m", CONFIG, {"1/factor": b"7"})

    await site.refusal("m")

    assert await site.answer() == [[7, -7]]
    assert len(site.overlay_folders()) == 1


@on_loop
async def test_loads_and_unloads_of_one_model_at_once_end_well(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "5")
    await site.engine.start(None)

    await asyncio.gather(
        site.engine.load("m", CONFIG, {"1/factor": b"1"}),
        site.engine.unload("m"),
        site.engine.load("m"),
        site.engine.load("m", CONFIG, {"1/factor": b"2"}),
        site.engine.unload("m"),
        site.engine.load("m", CONFIG, {"1/factor": b"3"}),
        return_exceptions=False,
    )
    await site.engine.load("m")

    assert await site.answer() == [[5, -5]]
    await until(lambda: site.overlay_folders() == [], "every overlay removed")
    made = site.backend.made
    await until(lambda: sum(instance.closed for instance in made) == len(made) - 1, "all others closed")  # type: ignore[attr-defined]


# Polling


@on_loop
async def test_polling_follows_the_repository(tmp_path: Path) -> None:
    site = Site(tmp_path, "poll")
    write_times(site.models, "stays", "1")
    write_times(site.models, "changes", "2")
    write_times(site.models, "goes", "3")
    await site.engine.start(None)

    await site.engine.poll()
    assert len(site.backend.made) == 3  # nothing has changed

    write_times(site.models, "changes", "22")
    write_times(site.models, "comes", "4")
    shutil.rmtree(site.models / "goes")
    await site.engine.poll()

    assert [await site.answer(name) for name in ("stays", "changes", "comes")] == [[[1, -1]], [[22, -22]], [[4, -4]]]
    assert len(site.backend.made) == 5
    assert site.no_answer("goes").code in (Code.INVALID_ARG, Code.NOT_FOUND)
    await until(lambda: not site.engine.lifecycle.in_flight(), "the end of what went")
    await site.engine.poll()
    assert site.no_answer("goes").code is Code.INVALID_ARG
    assert [row["name"] for row in await site.engine.index(ready=False)] == ["changes", "comes", "stays"]


@on_loop
async def test_a_change_that_fails_is_tried_once_and_leaves_the_old_version(tmp_path: Path) -> None:
    site = Site(tmp_path, "poll")
    write_times(site.models, "m", "2")
    write_times(site.models, "other", "3")
    await site.engine.start(None)

    write_times(site.models, "m", "no number")
    write_times(site.models, "other", "33")
    await site.engine.poll()
    attempts = len(site.backend.devices)
    await site.engine.poll()

    assert len(site.backend.devices) == attempts
    assert await site.answer("m") == [[2, -2]]
    assert await site.answer("other") == [[33, -33]]
    write_times(site.models, "m", "222")
    await site.engine.poll()
    assert await site.answer("m") == [[222, -222]]


@on_loop
async def test_a_repository_that_cannot_be_read_for_a_moment_loses_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path, "poll")
    write_times(site.models, "m", "2")
    await site.engine.start(None)

    site.models.rename(tmp_path / "away")
    await site.engine.poll()
    assert await site.answer() == [[2, -2]]
    (tmp_path / "away").rename(site.models)
    await site.engine.poll()

    assert await site.answer() == [[2, -2]]
    assert len(site.backend.made) == 1


@on_loop
async def test_a_model_in_two_repositories_is_in_neither(tmp_path: Path) -> None:
    site = Site(tmp_path)
    other = tmp_path / "more"
    other.mkdir()
    site.engine.holdings.repository = Repository([site.models, other])
    for repository in (site.models, other):
        write_times(repository, "m", "1")

    failures = await site.engine.start(None)

    assert "not unique across all model repositories" in failures["m"].message
    assert site.no_answer("m").code is Code.NOT_FOUND
    (row,) = await site.engine.index(ready=False)
    assert (row["name"], row["state"], row["reason"]) == ("m", "UNAVAILABLE", failures["m"].message)
