"""The repository index of models that are loading, or have lost instances; and as many loads as there may be."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

import pytest

from bident.backends.base import ModelFiles
from bident.engine.lifecycle import Lifecycle
from bident.engine.loader import Loader
from bident.model.config import ModelConfig
from bident.model.folder import ModelFolder
from tests.unit.engine.engine_fakes import (
    DEADLINE_S,
    Echo,
    FakeBackend,
    FakeBackends,
    NoModels,
    clients_of,
    on_loop,
    turns,
    until,
    write_model,
)
from tests.unit.engine.engine_house import Gate
from tests.unit.engine.engine_site import Site, write_times


@on_loop
async def test_since_when_a_model_is_loading(tmp_path: Path) -> None:
    site, gate = Site(tmp_path), Gate()
    site.backend.make = gate
    write_times(site.models, "m", "1")
    loading = asyncio.ensure_future(site.engine.load("m"))
    await until(lambda: gate.waiting, "the load")

    (row,) = await site.engine.index(ready=False)
    assert (row["name"], row["version"], row["state"]) == ("m", "1", "LOADING")
    assert re.fullmatch(r"loading since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["reason"])
    assert await site.engine.index(ready=True) == []
    gate.open()
    await loading
    assert await site.engine.index(ready=True) == [{"name": "m", "version": "1", "state": "READY"}]


@on_loop
async def test_a_look_at_the_repository_does_not_wait_for_what_an_earlier_one_loads(tmp_path: Path) -> None:
    site, gate = Site(tmp_path, "poll"), Gate()
    site.backend.make = gate
    write_times(site.models, "slow", "1")
    starting = asyncio.ensure_future(site.engine.start(None))
    await until(lambda: gate.waiting, "the load")
    site.backend.make = lambda files, config: Echo()
    write_times(site.models, "new", "1")

    await site.engine.poll()
    assert await site.answer("new") == [[1.0, -1.0]]
    write_times(site.models, "slow", "22")
    await site.engine.poll()
    gate.open()
    await starting
    assert len(site.backend.made) == 2
    await site.engine.poll()
    assert len(site.backend.made) == 3, "what changed while it loaded is loaded once it can be"


class Elsewhere(FakeBackend):
    """Its models are completed by somebody else, who takes his time."""

    def __init__(self, make: Gate) -> None:
        super().__init__(lambda files, config: Echo())
        self.gate = make

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        self.gate(files, config)
        return config


@pytest.mark.parametrize(("elsewhere", "together"), [(True, 5), (False, 2)])
@on_loop
async def test_loads_that_only_wait_do_not_take_turns(tmp_path: Path, elsewhere: bool, together: int) -> None:
    gate = Gate()
    backend = Elsewhere(gate)
    backend.completes_elsewhere = elsewhere  # type: ignore[misc]
    loader = Loader(FakeBackends(backend), at_once=2)  # type: ignore[arg-type]
    lifecycle = Lifecycle(loader, asyncio.get_running_loop(), clients_of(9))
    lifecycle.models = NoModels()
    folders = [ModelFolder(name, write_model(tmp_path, name)) for name in "abcde"]
    loading = [asyncio.ensure_future(lifecycle.load(folder)) for folder in folders]
    await until(lambda: gate.waiting == together, f"{together} loads at once")
    await turns(50)
    assert gate.waiting == together
    gate.open()
    await asyncio.wait_for(asyncio.gather(*loading), DEADLINE_S)


@on_loop
async def test_models_are_read_as_many_at_once_as_allowed(tmp_path: Path) -> None:
    gate = Gate()
    reading = FakeBackend(gate)
    loader = Loader(FakeBackends(reading), at_once=2)  # type: ignore[arg-type]
    folders = [ModelFolder(name, write_model(tmp_path, name)) for name in "abc"]
    threads = [threading.Thread(target=loader.load, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    await until(lambda: gate.waiting == 2, "two loads at once")
    await turns(50)
    assert gate.waiting == 2
    gate.open()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(reading.made) == 3
