"""A whole engine behind a door, without a network: what the property tests ask."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from http_line import Answer, Line, LineServer

from bident.backends.discovery import Backends
from bident.doors.http.routes import Routes
from bident.doors.http.v2 import V2
from bident.engine.clients import Clients
from bident.engine.control_mode import ControlMode
from bident.engine.engine import Engine
from bident.engine.lifecycle import Lifecycle
from bident.engine.loader import Loader
from bident.engine.shared_memory import SharedMemory
from bident.model.repository import Repository
from bident.wire.datatypes import DATATYPES
from tests.conftest import write_identity
from tests.unit.engine.engine_fakes import NoModels

MAX_INPUT = 4 << 20


class EngineDoor:
    """Identity models, one a datatype, named like it in small letters: Y is X, of any shape of two dimensions.

    ``line`` takes one text, so that it can be asked with a raw body.
    """

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        for word in DATATYPES:
            declared = "STRING" if word == "BYTES" else word
            write_identity(folder / "models", word.lower(), datatype=declared, dims="-1, -1", batch=0)
        write_identity(folder / "models", "line", datatype="STRING", dims="1", batch=0)
        self._lifecycle = Lifecycle(Loader(Backends({})), self._loop, Clients())
        self._lifecycle.models = NoModels()
        self.engine = engine = Engine(
            Repository([folder / "models"]),
            self._lifecycle,
            ControlMode("none"),
            folder / "overlays",
            shared_memory=SharedMemory(allowed=True),
        )
        failures = self._loop.run_until_complete(engine.start(None))
        assert failures == {}
        self.routes = V2(engine, name="test", version="0", max_input_bytes=MAX_INPUT).routes()

    def ask(self, request: bytes, routes: Routes | None = None) -> Answer:
        """The answer to the one request in ``request``, of other routes than the door's own where they are given."""
        return self._loop.run_until_complete(asyncio.wait_for(self._ask(request, routes or self.routes), 20))

    async def _ask(self, request: bytes, routes: Routes) -> Answer:
        line = Line(LineServer(routes))
        line.send(request)
        while not line.transport.written:
            await asyncio.sleep(0)
        (answer,) = line.answers()
        return answer

    def close(self) -> None:
        self._lifecycle.close()
        self._loop.close()


@pytest.fixture(scope="session")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineDoor]:
    door = EngineDoor(tmp_path_factory.mktemp("door"))
    yield door
    door.close()
