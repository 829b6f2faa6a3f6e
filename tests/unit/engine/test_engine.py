"""The one verb, and the control of what there is to ask."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bident.backends.base import Instance, ModelFiles
from bident.engine.engine import ControlMode, Engine
from bident.engine.lifecycle import Lifecycle
from bident.engine.loader import Loader
from bident.errors import Code, ServeError
from bident.model.config import ModelConfig
from bident.model.repository import Repository
from tests.unit.engine.engine_fakes import (
    BATCHING,
    THREAD,
    Asked,
    Echo,
    FakeBackend,
    FakeBackends,
    answer_of,
    answered,
    ask,
    clients_of,
    on_loop,
    until,
    write_model,
)


def times(files: ModelFiles, config: ModelConfig) -> Instance:
    """A model that multiplies by what its file says; a file that is no number is broken."""
    factor = np.float32((files.version_directory / "factor").read_text())
    return Echo(lambda inputs: {"Y": inputs["X"] * factor})


def write_times(repository: Path, name: str, factor: str, text: str = BATCHING, version: int = 1) -> Path:
    folder = write_model(repository, name, text, versions=(version,))
    (folder / str(version) / "factor").write_text(factor)
    return folder


class Site:
    """An engine over a repository in a temporary folder."""

    def __init__(self, root: Path, mode: str = "explicit", *, strict: bool = True) -> None:
        self.models = root / "models"
        self.models.mkdir(exist_ok=True)
        self.overlays = root / "overlays"
        self.backend = FakeBackend(times)
        loader = Loader(FakeBackends(self.backend))  # type: ignore[arg-type]
        lifecycle = Lifecycle(loader, asyncio.get_running_loop(), clients_of(9))
        self.engine = Engine(Repository([self.models]), lifecycle, ControlMode(mode), self.overlays, strict=strict)

    async def answer(self, name: str = "m", version: str = "") -> Any:
        request = ask(1, model=name, version=version)
        self.engine.infer(request)
        await answered(request)
        return request.tensors["Y"].tolist()

    async def refusal(self, *args: Any) -> ServeError:
        with pytest.raises(ServeError) as caught:
            await self.engine.load(*args)
        return caught.value

    def no_answer(self, name: str = "m", version: str = "") -> ServeError:
        with pytest.raises(ServeError) as caught:
            self.engine.infer(ask(1, model=name, version=version))
        return caught.value

    def overlay_folders(self) -> list[str]:
        return [path.name for path in self.overlays.iterdir()] if self.overlays.exists() else []


# Inference


@on_loop
async def test_a_request_is_answered_under_the_name_it_asked_for(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "2")
    assert await site.engine.start(None) == {}
    request = ask(3, request_id="r-\u00e9")

    site.engine.infer(request)
    await answered(request)

    response = request.response
    assert (response.model_name, response.model_version, response.id) == ("m", "1", "r-\u00e9")
    assert request.tensors["Y"].tolist() == [[6, -6]]


@on_loop
async def test_unknown_and_unloaded_models_are_told_apart(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for name in ("never", "m"):
        write_times(site.models, name, "2")
    await site.engine.start(["m"])

    assert (site.no_answer("x").code, site.no_answer("x").message) == (
        Code.INVALID_ARG,
        "Request for unknown model: 'x' is not found",
    )
    assert site.no_answer("never").code is Code.NOT_FOUND
    assert "Request for unknown model: 'never' is not found" in site.no_answer("never").message
    assert site.no_answer("m", "7").code is Code.NOT_FOUND
    await site.engine.unload("m")
    await until(lambda: site.engine.index(ready=False)[0].get("reason") == "unloaded", "the unload")
    assert site.no_answer("m").code is Code.NOT_FOUND
    assert "Request for unknown model: 'm' is not found" in site.no_answer("m").message
    for odd in ("..", "", "a/b", "\0", "\ud800", "x" * 5000, ".git"):
        assert site.no_answer(odd).code is Code.INVALID_ARG


@on_loop
async def test_an_invalid_request_is_refused_before_it_queues(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "2")
    await site.engine.start(None)

    with pytest.raises(ServeError, match="expected 1 inputs but got 0"):
        site.engine.infer(Asked())

    assert site.engine.model("m", "").scheduler.pending == 0


@pytest.mark.parametrize("change", ["nothing", "reload", "unload"])
@on_loop
async def test_a_cancelled_request_never_runs_whatever_became_of_its_model(tmp_path: Path, change: str) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "2", THREAD)
    await site.engine.start(None)
    old = site.backend.made[0]
    assert isinstance(old, Echo)
    old.hold()
    running, gone = ask(0), ask(1)
    site.engine.infer(running)
    await until(lambda: old.running, "an execution")
    site.engine.infer(gone)
    if change == "reload":
        write_times(site.models, "m", "3", THREAD)
        await site.engine.load("m")
    elif change == "unload":
        await site.engine.unload("m")

    site.engine.cancel(gone)

    assert gone.error.code is Code.CANCELLED
    old.release()
    await answered(running)
    await until(lambda: old.closed or change == "nothing", "the end")
    assert old.firsts == [[0]]


@on_loop
async def test_cancelling_what_nobody_knows_does_nothing(tmp_path: Path) -> None:
    request = ask(1, model="x")

    Site(tmp_path).engine.cancel(request)

    assert request.cancelled
    assert not request.is_answered


# Health


@on_loop
async def test_the_server_is_ready_once_started_and_every_model_is(tmp_path: Path) -> None:
    site, lenient = Site(tmp_path), Site(tmp_path, strict=False)
    write_times(site.models, "good", "2")
    write_times(site.models, "bad", "no number")
    for each in (site, lenient):
        assert each.engine.is_live
        assert not each.engine.is_ready

    failures = await site.engine.start(None)
    await lenient.engine.start(None)

    assert list(failures) == ["bad"]
    assert "load failed for model 'bad': version 1 is at UNAVAILABLE state: ValueError" in failures["bad"].message
    assert await site.answer("good") == [[2, -2]]
    assert (site.engine.is_ready, lenient.engine.is_ready) == (False, True)
    assert site.engine.is_model_ready("good", "")
    assert site.engine.is_model_ready("good", "1")
    assert not site.engine.is_model_ready("good", "2")
    assert not site.engine.is_model_ready("bad", "")
    await site.engine.unload("bad")
    assert site.engine.is_ready


@on_loop
async def test_a_server_without_models_is_ready(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.engine.start(None)

    assert site.engine.is_ready
    assert site.engine.index(ready=False) == []


@on_loop
async def test_a_server_on_its_way_out_answers_what_it_has_and_takes_nothing_new(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "m", "2")
    await site.engine.start(None)
    accepted = ask(1)
    site.engine.infer(accepted)

    site.engine.stop_accepting()

    assert site.no_answer().code is Code.UNAVAILABLE
    assert "Server exiting" in site.no_answer().message
    assert (site.engine.is_live, site.engine.is_ready) == (False, False)
    with pytest.raises(ServeError, match="Server exiting"):
        site.engine.check_running()
    for control in (site.engine.load, site.engine.unload):
        with pytest.raises(ServeError, match="Server exiting"):
            await control("m")
    await answered(accepted)
    assert accepted.tensors["Y"].tolist() == [[2, -2]]


@on_loop
async def test_figures_are_those_of_all_of_a_model_or_of_a_version(tmp_path: Path) -> None:
    site = Site(tmp_path)
    text = "version_policy { all { } }"
    write_times(site.models, "a", "1", text)
    write_times(site.models, "a", "2", text, version=2)
    write_times(site.models, "b", "1")
    await site.engine.start(None)

    def listed(name: str, version: str) -> list[tuple[str, int]]:
        return [(servable.name, servable.version) for servable in site.engine.stats(name, version)]

    assert listed("", "") == [("a", 1), ("a", 2), ("b", 1)]
    assert listed("a", "") == [("a", 1), ("a", 2)]
    assert listed("a", "2") == [("a", 2)]
    for name, version, words in (
        ("x", "", "requested model 'x' is not available"),
        ("b", "2", "requested model version is not available for model 'b'"),
    ):
        with pytest.raises(ServeError, match=words) as caught:
            site.engine.stats(name, version)
        assert caught.value.code is Code.INVALID_ARG


# The repository index


@on_loop
async def test_the_index_lists_what_exists_and_where_it_stands(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "good", "1", "version_policy { all { } }")
    write_times(site.models, "good", "1", "version_policy { all { } }", version=10)
    write_times(site.models, "good", "1", "version_policy { all { } }", version=9)
    write_times(site.models, "bad", "no number")
    write_times(site.models, "never", "1")
    (site.models / ".git").mkdir()
    await site.engine.start(["good", "bad"])

    assert site.engine.index(ready=False) == [
        {
            "name": "bad",
            "version": "1",
            "state": "UNAVAILABLE",
            "reason": "ValueError: could not convert string to float: 'no number'",
        },
        {"name": "good", "version": "1", "state": "READY"},
        {"name": "good", "version": "9", "state": "READY"},
        {"name": "good", "version": "10", "state": "READY"},
        {"name": "never"},
    ]
    assert [row["version"] for row in site.engine.index(ready=True)] == ["1", "9", "10"]


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

    assert site.engine.index(ready=False) == []


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
    assert site.engine.config("m", "").max_batch_size == 2
    assert await site.answer() == [[5, -5]]
    await site.engine.load("m")

    assert site.engine.config("m", "").max_batch_size == 8
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
    assert site.engine.index(ready=False) == [{"name": "new", "version": "1", "state": "READY"}]
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
    assert [row["name"] for row in site.engine.index(ready=False)] == ["changes", "comes", "stays"]


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
    site.engine.repository = Repository([site.models, other])
    for repository in (site.models, other):
        write_times(repository, "m", "1")

    failures = await site.engine.start(None)

    assert "not unique across all model repositories" in failures["m"].message
    assert site.no_answer("m").code is Code.NOT_FOUND
    (row,) = site.engine.index(ready=False)
    assert (row["name"], row["state"], row["reason"]) == ("m", "UNAVAILABLE", failures["m"].message)
