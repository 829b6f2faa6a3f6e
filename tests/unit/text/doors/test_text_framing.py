"""What happens when clients go, stall or are slow: answers are given up, and nothing is held for nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from bident.errors import Code
from bident.text.doors import bodies, framing
from bident.text.doors.bodies import Bodies
from bident.text.doors.routes import application
from bident.wire.text import TextEnd, TextEvent, TextPiece, TextRequest
from tests.unit.text.doors.scripted_engine import ScriptedEngine

DEADLINE = 5.0


class Endless(ScriptedEngine):
    """Says one piece (or none), and nothing more for ever."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.pieces = pieces
        self.started = asyncio.Event()

    async def answer(self, request: TextRequest) -> AsyncGenerator[TextEvent, None]:
        try:
            for _ in range(self.pieces):
                yield TextPiece(content="x")
            self.started.set()
            await asyncio.Event().wait()
            yield TextEnd()
        finally:
            self.ended += 1


class Talkative(Endless):
    async def answer(self, request: TextRequest) -> AsyncGenerator[TextEvent, None]:
        try:
            self.started.set()
            while True:
                yield TextPiece(content="x")
        finally:
            self.ended += 1


class Connection:
    """One request of an ASGI server, whose client goes when it is told to."""

    def __init__(self, app: Any, path: str, body: dict[str, Any], *, takes: Callable[[], Any] | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self._takes = takes
        self._incoming = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        scope |= {"headers": [(b"host", b"localhost")], "server": ("localhost", 80), "root_path": ""}
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._incoming:
            return self._incoming.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        if self._takes is not None and message["type"] == "http.response.body":
            await self._takes()


ASKS = [
    ("/api/chat", {"stream": True}),
    ("/api/chat", {"stream": False}),
    ("/v1/chat/completions", {"stream": True}),
    ("/v1/chat/completions", {"stream": False}),
    ("/v1/messages", {"stream": True, "max_tokens": 5}),
    ("/v1/responses", {"stream": True, "input": "x"}),
]


@pytest.mark.parametrize("pieces", [0, 1])
@pytest.mark.parametrize(("path", "more"), ASKS)
def test_a_client_that_goes_ends_the_answer(path: str, more: dict[str, Any], pieces: int) -> None:
    async def scene() -> None:
        engine = Endless(pieces)
        body = {"model": "smol", "messages": [{"role": "user", "content": "Hi"}], **more}
        connection = Connection(application(engine, Bodies(10000)), path, body)  # type: ignore[arg-type]
        await asyncio.wait_for(engine.started.wait(), DEADLINE)
        assert engine.ended == 0
        connection.gone.set()
        await asyncio.wait_for(connection.task, DEADLINE)
        assert engine.ended == 1

    asyncio.run(scene())


def test_a_server_that_stops_ends_the_answer() -> None:
    async def scene() -> None:
        engine = Endless(1)
        connection = Connection(application(engine, Bodies(10000)), "/api/generate", {"model": "smol", "prompt": "x"})  # type: ignore[arg-type]
        await asyncio.wait_for(engine.started.wait(), DEADLINE)
        connection.task.cancel()
        await connection.task
        assert engine.ended == 1
        assert "stopping" in json.loads(connection.sent[-1]["body"])["error"]
        assert connection.sent[-1]["more_body"] is False

    asyncio.run(scene())


def test_a_client_that_takes_nothing_ends_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "_STALL_SECONDS", 0.05)

    async def scene() -> None:
        engine = Talkative(0)
        app = application(engine, Bodies(10000))  # type: ignore[arg-type]
        connection = Connection(app, "/api/generate", {"model": "smol", "prompt": "x"}, takes=asyncio.Event().wait)
        await asyncio.wait_for(connection.task, DEADLINE)
        assert engine.ended == 1

    asyncio.run(scene())


def test_each_piece_is_sent_at_once() -> None:
    async def scene() -> None:
        engine = Endless(1)
        connection = Connection(application(engine, Bodies(10000)), "/api/generate", {"model": "smol", "prompt": "x"})  # type: ignore[arg-type]
        await asyncio.wait_for(engine.started.wait(), DEADLINE)
        start, piece = connection.sent
        assert (start["status"], piece["more_body"]) == (200, True)
        assert piece["body"].endswith(b"\n")
        assert json.loads(piece["body"])["response"] == "x"
        connection.gone.set()
        await connection.task

    asyncio.run(scene())


def test_a_body_that_stops_coming_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_SECONDS_BETWEEN_PARTS", 0.05)

    async def scene() -> None:
        sent: list[dict[str, Any]] = []
        incoming = [{"type": "http.request", "body": b'{"model":', "more_body": True}]

        async def receive() -> dict[str, Any]:
            if incoming:
                return incoming.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        app = application(ScriptedEngine(), Bodies(10000))  # type: ignore[arg-type]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/api/chat",
            "headers": [],
            "query_string": b"",
            "root_path": "",
        }
        await asyncio.wait_for(app(scope, receive, send), DEADLINE)
        assert sent[0]["status"] == 499

    asyncio.run(scene())


def test_all_bodies_together_are_bounded() -> None:
    async def scene() -> None:
        shared = Bodies(100)
        held = [asyncio.Event() for _ in range(9)]
        codes: list[Code | None] = []

        async def read(number: int) -> None:
            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": b"x" * 100, "more_body": False}

            try:
                async with shared.read_from({"type": "http", "headers": []}, receive):
                    codes.append(None)
                    await held[number].wait()
            except bodies.ServeError as error:
                codes.append(error.code)

        first = [asyncio.ensure_future(read(number)) for number in range(8)]
        while len(codes) < 8:
            await asyncio.sleep(0)
        await read(8)
        assert codes == [None] * 8 + [Code.UNAVAILABLE]
        for each in held:
            each.set()
        await asyncio.gather(*first)
        await read(8)
        assert codes[-1] is None

    asyncio.run(scene())
