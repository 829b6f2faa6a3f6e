"""What is loaded, what is not, and what is said of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bident.backends.base import Instance, ModelFiles
from bident.engine.state import State
from bident.errors import Code, ServeError
from bident.model.config import ModelConfig
from bident.model.folder import ModelFolder
from tests.unit.engine.engine_fakes import (
    BATCHING,
    DEADLINE_S,
    Echo,
    answer_of,
    answered,
    ask,
    on_loop,
    turns,
    until,
)
from tests.unit.engine.engine_house import ALL_VERSIONS, Gate, House, broken

# Loading


@on_loop
async def test_a_loaded_model_answers_by_name_and_by_version(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.load(text=BATCHING + ALL_VERSIONS, versions=(2, 10, 9))

    assert house.lifecycle.versions("m") == [2, 9, 10]
    assert {version: house.lifecycle.find("m", version).version for version in ("", "2", "9", "10")} == {
        "": 10,
        "2": 2,
        "9": 9,
        "10": 10,
    }
    assert house.states() == {2: "READY", 9: "READY", 10: "READY"}
    assert house.lifecycle.all_ready()
    request = ask(1, version="9")
    house.infer(request)
    await answered(request)
    assert request.response.model_version == "9"
    assert [servable.stats.success.count for servable in house.lifecycle.servables()] == [0, 1, 0]


@on_loop
async def test_servables_are_listed_by_name_and_version_as_numbers(tmp_path: Path) -> None:
    house = House(tmp_path)
    for name in ("b", "a"):
        await house.load(name, BATCHING + ALL_VERSIONS, versions=(10, 9))

    listed = [(servable.name, servable.version) for servable in house.lifecycle.servables()]

    assert listed == [("a", 9), ("a", 10), ("b", 9), ("b", 10)]
    assert house.lifecycle.names() == ["a", "b"]


@on_loop
async def test_what_loads_is_loading_and_not_ready(tmp_path: Path) -> None:
    gate = Gate()
    house = House(tmp_path, gate)
    loading = asyncio.ensure_future(house.load(versions=(1, 2)))
    await until(lambda: gate.waiting, "the load")

    assert house.states() == {2: "LOADING"}  # version 1 is not chosen by the policy
    assert not house.lifecycle.all_ready()
    by_version, by_name = house.absent(version="2"), house.absent()
    assert by_version.code is Code.UNAVAILABLE
    assert by_version.message.startswith("Request for unknown model: 'm' version 2 is not at ready state")
    assert by_name.code is Code.NOT_FOUND
    assert "'m' has no available versions" in by_name.message
    gate.open()
    await loading
    assert house.states() == {2: "READY"}
    assert house.lifecycle.all_ready()


@on_loop
async def test_how_long_loading_took_is_written_down(tmp_path: Path) -> None:
    gate = Gate()
    house = House(tmp_path, gate)
    loading = asyncio.ensure_future(house.load())
    await until(lambda: gate.waiting, "the load")
    started = asyncio.get_running_loop().time()
    await until(lambda: asyncio.get_running_loop().time() > started + 0.02, "20 ms")
    gate.open()
    await loading

    assert 0.02 <= house.lifecycle.find("m", "").stats.load_seconds < DEADLINE_S


@on_loop
async def test_models_load_side_by_side_on_as_many_threads_as_allowed(tmp_path: Path) -> None:
    gate = Gate()
    house = House(tmp_path, gate, threads=2)
    loading = [asyncio.ensure_future(house.load(name)) for name in "abc"]

    await until(lambda: gate.waiting == 2, "two loads at once")
    await turns(50)
    assert gate.waiting == 2
    gate.open()
    await asyncio.gather(*loading)

    assert house.lifecycle.names() == ["a", "b", "c"]


# What is not there


@on_loop
async def test_who_asks_for_what_is_not_there_is_told_why(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.load(text=BATCHING + ALL_VERSIONS, versions=(1, 3))

    unknown, version = house.absent("x"), house.absent(version="2")

    assert (unknown.code, unknown.message) == (Code.INVALID_ARG, "Request for unknown model: 'x' is not found")
    assert version.code is Code.NOT_FOUND
    assert version.message.startswith("Request for unknown model: 'm' version 2 is not found")
    assert "1, 3" in version.message
    assert "version should be an integral value" in house.absent(version="latest").message
    assert house.lifecycle.find("m", "01") is house.lifecycle.find("m", "1")


# Failing loads


@on_loop
async def test_a_first_load_that_fails_says_why_wherever_one_asks(tmp_path: Path) -> None:
    house = House(tmp_path, broken)

    error = await house.refusal(versions=(1, 2))

    assert error.code is Code.INVALID_ARG
    assert error.message == (
        "load failed for model 'm': version 2 is at UNAVAILABLE state: ValueError: the file is broken;\n"
    )
    assert (house.states(), house.reasons()) == ({2: "UNAVAILABLE"}, {2: "ValueError: the file is broken"})
    assert not house.lifecycle.all_ready()
    assert house.absent(version="2").code is Code.UNAVAILABLE
    assert "not at ready state (ValueError: the file is broken)" in house.absent(version="2").message
    assert house.absent().code is Code.NOT_FOUND
    assert "has no available versions (ValueError: the file is broken)" in house.absent().message


@on_loop
async def test_a_config_that_cannot_be_read_makes_the_model_unavailable(tmp_path: Path) -> None:
    house = House(tmp_path)

    error = await house.refusal(text="dims [", versions=(4,))

    assert error.message.startswith("load failed for model 'm': version 4 is at UNAVAILABLE state: ")
    assert house.states() == {4: "UNAVAILABLE"}
    assert "config.pbtxt" in house.reasons()[4]


@on_loop
async def test_a_folder_without_versions_is_unavailable_and_says_so(tmp_path: Path) -> None:
    house = House(tmp_path)

    error = await house.refusal(versions=())

    assert "at least one version must be available under the version policy of model 'm'" in error.message
    assert not house.lifecycle.all_ready()


@on_loop
async def test_a_folder_that_has_gone_is_a_load_that_failed(tmp_path: Path) -> None:
    house = House(tmp_path)

    with pytest.raises(ServeError) as caught:
        await house.lifecycle.load(ModelFolder("m", tmp_path / "m"))

    assert caught.value.code is Code.INVALID_ARG
    assert caught.value.message.startswith("load failed for model 'm': ")
    assert "cannot read the folder of model 'm'" in caught.value.message
    assert not house.lifecycle.all_ready()


@on_loop
async def test_a_reload_that_fails_leaves_the_old_version_serving(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.load()
    house.backend.make = broken

    error = await house.refusal()

    assert "ValueError: the file is broken" in error.message
    assert (house.states(), house.lifecycle.all_ready()) == ({1: "READY"}, True)
    request = ask(1)
    house.infer(request)
    await answered(request)
    assert request.tensors["Y"].tolist() == answer_of(1)
    assert house.backend.made[0].closed == 0  # type: ignore[attr-defined]


@on_loop
async def test_a_reload_that_fails_does_not_touch_versions_that_the_policy_leaves_out(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.load(versions=(1, 2))
    house.backend.make = broken

    await house.refusal(versions=(1, 2))

    assert (house.states(), house.lifecycle.all_ready()) == ({2: "READY"}, True)


@on_loop
async def test_one_broken_version_keeps_the_others_of_its_load_out_of_service(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.load()

    def second_is_broken(files: ModelFiles, config: ModelConfig) -> Instance:
        return broken(files, config) if files.version == 3 else Echo()

    house.backend.make = second_is_broken
    await house.refusal(text=BATCHING + ALL_VERSIONS, versions=(1, 2, 3))

    assert house.states() == {1: "READY", 2: "UNAVAILABLE", 3: "UNAVAILABLE"}
    assert house.lifecycle.versions("m") == [1]
    assert [instance.closed for instance in house.backend.made] == [0, 1, 1]  # type: ignore[attr-defined]


@on_loop
async def test_a_model_can_be_loaded_after_it_failed(tmp_path: Path) -> None:
    house = House(tmp_path, broken)
    await house.refusal()
    house.backend.make = lambda files, config: Echo()

    await house.load()

    assert (house.states(), house.reasons()) == ({1: "READY"}, {1: ""})


# Fingerprints


@on_loop
async def test_fingerprints_tell_what_is_served_and_what_was_tried(tmp_path: Path) -> None:
    house = House(tmp_path)
    assert (house.lifecycle.fingerprint("m"), house.lifecycle.attempted("m")) == (None, None)
    folder = house.folder()
    await house.lifecycle.load(folder)
    served = folder.fingerprint()
    assert house.lifecycle.fingerprint("m") == house.lifecycle.attempted("m") == served

    house.backend.make = broken
    (folder.directory / "1" / "model.bin").write_bytes(b"new")
    with pytest.raises(ServeError):
        await house.lifecycle.load(folder)

    assert house.lifecycle.fingerprint("m") == served
    assert house.lifecycle.attempted("m") == folder.fingerprint() != served
    await house.lifecycle.unload("m")
    assert (house.lifecycle.fingerprint("m"), house.lifecycle.attempted("m")) == (None, None)


def test_states_have_tritons_words() -> None:
    assert {state.value for state in State} == {"UNKNOWN", "READY", "UNAVAILABLE", "LOADING", "UNLOADING"}
