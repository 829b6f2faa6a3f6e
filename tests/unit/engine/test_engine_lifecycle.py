"""What is loaded: load, swap, drain, unload, and what is said of it meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bident.backends.base import Instance, ModelFiles
from bident.engine.lifecycle import Lifecycle, State
from bident.engine.loader import Loader
from bident.errors import Code, ServeError
from bident.model.config import ModelConfig
from bident.model.folder import ModelFolder
from tests.unit.engine.engine_fakes import (
    BATCHING,
    DEADLINE_S,
    INLINE,
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
    turns,
    until,
    write_model,
)

Make = Callable[[ModelFiles, ModelConfig], Instance]
ALL_VERSIONS = "version_policy { all { } }"


class House:
    """A lifecycle over a repository in a temporary folder."""

    def __init__(self, root: Path, make: Make = lambda files, config: Echo(), *, threads: int = 4) -> None:
        self.root = root
        self.backend = FakeBackend(make)
        loader = Loader(FakeBackends(self.backend))  # type: ignore[arg-type]
        self.lifecycle = Lifecycle(loader, asyncio.get_running_loop(), clients_of(9), threads=threads)

    async def load(self, name: str = "m", text: str = BATCHING, *, versions: tuple[int, ...] = (1,)) -> None:
        await self.lifecycle.load(self.folder(name, text, versions=versions))

    def folder(self, name: str = "m", text: str = BATCHING, *, versions: tuple[int, ...] = (1,)) -> ModelFolder:
        return ModelFolder(name, write_model(self.root, name, text, versions=versions))

    def states(self, name: str = "m") -> dict[int, str]:
        return {version: state.state.value for version, state in sorted(self.lifecycle.states(name).items())}

    def reasons(self, name: str = "m") -> dict[int, str]:
        return {version: state.reason for version, state in sorted(self.lifecycle.states(name).items())}

    def absent(self, name: str = "m", version: str = "") -> ServeError:
        with pytest.raises(ServeError) as caught:
            self.lifecycle.find(name, version)
        return caught.value

    async def refusal(self, name: str = "m", text: str = BATCHING, *, versions: tuple[int, ...] = (1,)) -> ServeError:
        with pytest.raises(ServeError) as caught:
            await self.load(name, text, versions=versions)
        return caught.value

    def infer(self, request: Asked) -> None:
        self.lifecycle.find(request.model_name, request.model_version).infer(request)


def broken(files: ModelFiles, config: ModelConfig) -> Instance:
    raise ValueError("the file is broken")


class Gate:
    """Lets a test stop loading threads on their way."""

    def __init__(self) -> None:
        self.waiting = 0
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def __call__(self, files: ModelFiles, config: ModelConfig) -> Instance:
        self.waiting += 1
        assert self._open.wait(DEADLINE_S), "nobody opened the gate"
        self.waiting -= 1
        return Echo()


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
    assert house.absent(version="latest").code is Code.NOT_FOUND
    assert house.absent(version="9" * 30).code is Code.NOT_FOUND


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


# Swapping


class Constant(Echo):
    """Answers each row with [value, rows of the batch]."""

    def __init__(self, value: float) -> None:
        super().__init__(self._answer)
        self._value = value

    def _answer(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"Y": np.tile(np.array([[self._value, 0]], np.float32), (len(inputs["X"]), 1))}


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
    while not reloading.done():
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
