"""Whatever one model, one folder or the machine does: the rest goes on, and nothing stays half done."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bident.engine import servable as servable_module
from bident.errors import Code, ServeError
from bident.model.folder import ModelFolder
from bident.model.repository import Repository
from tests.unit.engine.engine_fakes import DEADLINE_S, Echo, on_loop, until, write_model
from tests.unit.engine.engine_house import ALL_VERSIONS, Gate, House
from tests.unit.engine.engine_site import Site, write_times

# Loads


def raising(error: Exception) -> Callable[..., Any]:
    def step(*args: object, **kwargs: object) -> Any:
        raise error

    return step


def break_listing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelFolder, "versions", raising(MemoryError("no room")))


def break_fingerprint(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelFolder, "fingerprint", raising(ValueError("no print")))


def break_loading(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house.lifecycle._loader, "load", raising(MemoryError("no room")))


def break_service(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servable_module, "Scheduler", raising(MemoryError("no room")))


def break_threads(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))


BREAKS = [break_listing, break_fingerprint, break_loading, break_service, break_threads]


@pytest.mark.parametrize("accident", BREAKS)
@on_loop
async def test_an_accident_in_a_load_is_an_answer_and_leaves_nothing_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accident: Callable[..., None]
) -> None:
    house = House(tmp_path)
    folder = house.folder(text=ALL_VERSIONS, versions=(1, 2))

    with monkeypatch.context() as broken:
        accident(house, broken)
        with pytest.raises(ServeError, match="load failed for model 'm'"):
            await house.lifecycle.load(folder)

    assert set(house.states().values()) == {"UNAVAILABLE"}
    assert {reason.split(":")[0] for reason in house.reasons().values()} <= {
        "MemoryError",
        "ValueError",
        "RuntimeError",
    }
    await until(lambda: all(instance.closed for instance in house.backend.made), "every instance closed")  # type: ignore[attr-defined]
    made = len(house.backend.made)
    await house.lifecycle.load(folder)
    assert house.states() == {1: "READY", 2: "READY"}
    assert len(house.backend.made) == made + 2, "the step that found no thread was not done later"


@on_loop
async def test_an_accident_in_a_reload_leaves_the_old_one_in_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path)
    await house.load()
    old = house.lifecycle.find("m", "")

    with monkeypatch.context() as broken:
        break_service(house, broken)
        await house.refusal()

    assert house.lifecycle.find("m", "") is old
    assert house.states() == {1: "READY"}
    assert [instance.closed for instance in house.backend.made] == [0, 1]  # type: ignore[attr-defined]


@on_loop
async def test_a_load_that_is_cancelled_ends_and_what_it_made_is_closed(tmp_path: Path) -> None:
    gate = Gate()
    house = House(tmp_path, gate)
    loading = asyncio.ensure_future(house.load())
    await until(lambda: gate.waiting, "the load")

    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading

    assert house.states() == {1: "UNAVAILABLE"}
    gate.open()
    await until(lambda: [instance.closed for instance in house.backend.made] == [1], "the close")  # type: ignore[attr-defined]


@on_loop
async def test_a_model_is_closed_even_where_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path)
    await house.load()

    with monkeypatch.context() as broken:
        break_threads(house, broken)
        await house.lifecycle.unload("m")
        await until(lambda: house.reasons() == {1: "unloaded"}, "the unload")

    (instance,) = house.backend.made
    await asyncio.get_running_loop().run_in_executor(None, int)  # which also does what it has noted before
    assert instance.closed == 1  # type: ignore[attr-defined]


# Versions


@pytest.mark.parametrize("version", ["9" * 5000, "-1", "\u0661", "1_0", " 1", "x", str(2**70)])
@on_loop
async def test_a_version_that_is_no_version_is_refused(tmp_path: Path, version: str) -> None:
    house = House(tmp_path)
    await house.load()

    error = house.absent(version=version)

    assert error.code is Code.INVALID_ARG
    assert "version should be an integral value > 0" in error.message
    assert len(error.message) < 300


@pytest.mark.parametrize("version", ["0", "02", str(2**63)])
@on_loop
async def test_a_version_that_there_is_not_is_not_found(tmp_path: Path, version: str) -> None:
    house = House(tmp_path)
    await house.load()

    assert house.absent(version=version).code is Code.NOT_FOUND


# The stop


@on_loop
async def test_at_the_end_everything_is_closed(tmp_path: Path) -> None:
    house = House(tmp_path)
    for name in ("a", "b"):
        await house.load(name, ALL_VERSIONS, versions=(1, 2))

    assert await house.lifecycle.retire_all(DEADLINE_S) == []

    assert [instance.closed for instance in house.backend.made] == [1] * 4  # type: ignore[attr-defined]
    assert house.lifecycle.servables() == []
    assert house.absent("a").code is Code.NOT_FOUND
    assert not house.lifecycle.close()


@on_loop
async def test_a_model_that_does_not_close_is_named_when_the_time_is_up(tmp_path: Path) -> None:
    closing = threading.Event()

    class Stuck(Echo):
        def close(self) -> None:
            assert closing.wait(DEADLINE_S)

    house = House(tmp_path, lambda files, config: Stuck() if config.name == "stuck" else Echo())
    for name in ("stuck", "good"):
        await house.load(name)

    assert await house.lifecycle.retire_all(0.2) == ["stuck"]

    assert house.backend.made[1].closed == 1  # type: ignore[attr-defined]
    closing.set()
    assert await house.lifecycle.retire_all(DEADLINE_S) == []


# Start, poll, index


@on_loop
async def test_a_start_survives_whatever_one_model_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path, "poll")
    for name in ("good", "odd", "lost"):
        write_times(site.models, name, "2")
    for version in (1, 2):
        (site.models / os.fsdecode(b"bad\xff") / str(version)).mkdir(parents=True)
    find = site.engine.holdings.repository.find
    fingerprint = ModelFolder.fingerprint

    def odd(folder: ModelFolder) -> object:
        if folder.name == "odd":
            raise RecursionError("too deep")
        return fingerprint(folder)

    def lost(name: str) -> ModelFolder:
        if name == "lost":
            raise MemoryError("no room")
        return find(name)

    monkeypatch.setattr(ModelFolder, "fingerprint", odd)
    monkeypatch.setattr(site.engine.holdings.repository, "find", lost)

    failures = await site.engine.start(None)
    await site.engine.poll()

    assert sorted(failures) == ["lost", "odd"]
    assert await site.answer("good") == [[2, -2]]
    rows = {row["name"]: row for row in await site.engine.index(ready=False)}
    assert {name: row["state"] for name, row in rows.items()} == {
        "good": "READY",
        "lost": "UNAVAILABLE",
        "odd": "UNAVAILABLE",
    }
    assert "RecursionError: too deep" in rows["odd"]["reason"]


@on_loop
async def test_a_name_that_is_no_text_can_be_asked_for_and_shown(tmp_path: Path) -> None:
    site = Site(tmp_path)

    failures = await site.engine.start(["bad\udcff"])

    assert list(failures) == ["bad\\udcff"]
    (row,) = await site.engine.index(ready=False)
    str(row).encode()


@on_loop
async def test_a_file_whose_name_is_no_text_is_shown_in_text(tmp_path: Path) -> None:
    site = Site(tmp_path)
    folder = write_model(site.models, "m")
    (folder / "config.pbtxt").unlink()
    Path(os.fsdecode(os.fsencode(folder / "1") + b"/odd\xff")).touch()

    failures = await site.engine.start(None)

    assert "odd\\udcff" in failures["m"].message
    (row,) = await site.engine.index(ready=False)
    row["reason"].encode()


@on_loop
async def test_an_entry_that_cannot_be_read_keeps_nobody_from_vanishing(tmp_path: Path) -> None:
    site = Site(tmp_path, "poll")
    for name in ("goes", "stays", "unclear"):
        write_times(site.models, name, "2")
    await site.engine.start(None)

    for name in ("goes", "unclear"):
        (site.models / name).rename(tmp_path / name)
    (site.models / "unclear").symlink_to("unclear")
    await site.engine.poll()

    assert site.no_answer("goes").code in (Code.INVALID_ARG, Code.NOT_FOUND)
    assert await site.answer("stays") == [[2, -2]]
    assert await site.answer("unclear") == [[2, -2]]


@on_loop
async def test_a_repository_that_cannot_be_read_keeps_only_its_own_models(tmp_path: Path) -> None:
    site = Site(tmp_path, "poll")
    other = tmp_path / "other"
    site.engine.holdings.repository = Repository([site.models, other])
    write_times(site.models, "goes", "2")
    write_times(other, "away", "3")
    await site.engine.start(None)

    other.rename(tmp_path / "elsewhere")
    (site.models / "goes").rename(tmp_path / "goes")
    await site.engine.poll()

    assert await site.answer("away") == [[3, -3]]
    assert site.no_answer("goes").code in (Code.INVALID_ARG, Code.NOT_FOUND)


@on_loop
async def test_polled_models_load_side_by_side(tmp_path: Path) -> None:
    site = Site(tmp_path, "poll")
    await site.engine.start(None)
    gate = Gate()
    site.backend.make = gate
    for name in ("a", "b"):
        write_times(site.models, name, "1")

    polling = asyncio.ensure_future(site.engine.poll())
    await until(lambda: gate.waiting == 2, "both loads")
    gate.open()
    await polling

    assert len(site.backend.made) == 2


@on_loop
async def test_the_loop_never_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    write_times(site.models, "never", "1")
    await site.engine.start([])
    here = threading.get_ident()
    touched: list[int] = []
    scandir, stat = os.scandir, os.stat
    monkeypatch.setattr(os, "scandir", lambda *args: touched.append(threading.get_ident()) or scandir(*args))
    monkeypatch.setattr(os, "stat", lambda *args, **kw: touched.append(threading.get_ident()) or stat(*args, **kw))
    monkeypatch.setattr(Path, "is_dir", lambda path: touched.append(threading.get_ident()) or stat(path))

    index = await site.engine.index(ready=False)
    unknown, known = site.no_answer("unknown"), site.no_answer("never")

    assert index == [{"name": "never"}]
    assert (unknown.code, known.code) == (Code.INVALID_ARG, Code.NOT_FOUND)
    assert "it is in the repository: load it first" in known.message
    assert touched, "the index was made from the disk"
    assert here not in touched


@on_loop
async def test_what_came_after_the_start_is_known_once_the_index_was_asked_for(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.engine.start([])
    write_times(site.models, "late", "1")

    await site.engine.index(ready=False)

    assert site.no_answer("late").code is Code.NOT_FOUND


@on_loop
async def test_an_override_of_a_dot_deletes_no_other(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.engine.start([])
    config = '{"backend": "fake"}'
    for name in (".", "..", ".hidden"):
        error = await site.refusal(name, config, {"1/factor": b"1"})
        assert error.code is Code.INVALID_ARG
    assert site.overlay_folders() == []
