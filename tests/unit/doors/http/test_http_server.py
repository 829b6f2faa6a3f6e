"""The listener: dispatch, limits, the sweep; with a real loop where the loop matters."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import resource
import socket
import time
from collections.abc import AsyncIterator

import pytest
from http_line import Answer, Line, LineServer, get, read_answers

from bident.doors import listener as listener_module
from bident.doors.http.exchange import Exchange
from bident.doors.http.limits import HttpLimits
from bident.doors.http.protocol import HttpConnection
from bident.doors.http.reader import RequestReader
from bident.doors.http.routes import Routes
from bident.doors.http.server import HttpServer
from bident.doors.listener import allow_open_files
from bident.errors import Code, ServeError
from bident.sockets import Listening, bind_all


async def refuse_later(exchange: Exchange) -> None:
    await asyncio.sleep(0)
    raise ServeError(Code.NOT_FOUND, "no such thing")


async def fail_later(exchange: Exchange) -> None:
    await asyncio.sleep(0)
    raise RuntimeError("a secret")


def refuse(exchange: Exchange) -> None:
    raise ServeError(Code.UNAVAILABLE, "not now")


def fail(exchange: Exchange) -> None:
    raise RuntimeError("a secret")


def answer_and_fail(exchange: Exchange) -> None:
    exchange.respond_json(b"{}")
    raise RuntimeError("a secret")


def answer_surrogates(exchange: Exchange) -> None:
    exchange.respond_error(400, "lone \ud800 surrogate")


async def answer_later(exchange: Exchange) -> None:
    exchange.respond_later(fail_later(exchange))


def routes() -> Routes:
    table = Routes()
    for serve in (refuse_later, fail_later, refuse, fail, answer_and_fail, answer_surrogates, answer_later):
        table.add("GET", f"/{serve.__name__}", serve)
    return table


@contextlib.asynccontextmanager
async def listening(limits: HttpLimits | None = None) -> AsyncIterator[tuple[HttpServer, int]]:
    server = HttpServer(routes(), limits or HttpLimits(), "test door")
    sock = bind_all([Listening("test door", "127.0.0.1", 0)])["test door"]
    await server.start(sock)
    try:
        yield server, sock.getsockname()[1]
    finally:
        await server.stop()


async def ask(port: int, data: bytes) -> list[Answer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        writer.write_eof()
        return read_answers(await reader.read())
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/refuse", 503, "not now"),
        ("/refuse_later", 404, "no such thing"),
        ("/fail", 500, "internal error in the server; its log has the details"),
        ("/fail_later", 500, "internal error in the server; its log has the details"),
        ("/answer_later", 500, "internal error in the server; its log has the details"),
        ("/answer_surrogates", 400, "lone ? surrogate"),
    ],
)
def test_whatever_goes_wrong_is_answered(path: str, status: int, error: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> list[Answer]:
        async with listening() as (_, port):
            return await ask(port, get(path))

    (answer,) = asyncio.run(run())
    assert (answer.status, json.loads(answer.body)) == (status, {"error": error})
    logged = [record for record in caplog.records if record.name == "bident.http"]
    assert [record.exc_info is not None for record in logged] == ([True] if status == 500 else [])
    assert all(path in record.getMessage() for record in logged)


def test_a_failure_after_the_answer_changes_nothing_for_the_client() -> None:
    async def run() -> list[Answer]:
        async with listening() as (_, port):
            return await ask(port, get("/answer_and_fail") + get("/refuse"))

    assert [answer.status for answer in asyncio.run(run())] == [200, 503]


def test_one_connection_too_many_is_cut_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "_SWEEP_SECONDS", 0.02)

    def refused() -> int:
        return sum(int(record.getMessage().split(": ")[1].split()[0]) for record in caplog.records)

    async def run() -> None:
        async with listening(HttpLimits(connections=3)) as (server, port):
            kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for _ in range(20):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
            deadline = time.monotonic() + 10
            while refused() < 20:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            assert server.connection_count == 3
            for reader, writer in kept:
                writer.write(get("/refuse"))
                assert await reader.readline() == b"HTTP/1.1 503 Service Unavailable\r\n"
                writer.close()

    asyncio.run(run())
    messages = [record.getMessage() for record in caplog.records]
    assert refused() == 20
    assert all("--http-max-connections" in message for message in messages)
    assert len(messages) < 20


def test_no_limit_of_connections() -> None:
    server = LineServer(limits=HttpLimits(connections=0))
    lines = [Line(server) for _ in range(100)]
    assert server.connection_count == 100
    assert not any(line.is_closed for line in lines)


def test_small_answers_do_not_wait_for_company() -> None:
    async def run() -> int:
        async with listening() as (server, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            while not server.connection_count:
                await asyncio.sleep(0.001)
            (connection,) = server._connections
            sock = connection._transport.get_extra_info("socket")
            writer.close()
            return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)  # type: ignore[no-any-return]

    assert asyncio.run(run()) != 0


class TestSweep:
    def server(self, monkeypatch: pytest.MonkeyPatch) -> tuple[LineServer, FakeLoop]:
        server, loop = LineServer(), FakeLoop()
        server._loop = loop  # type: ignore[assignment]
        return server, loop

    def test_time_in_which_the_loop_stood_still_is_not_held_against_clients(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server, loop = self.server(monkeypatch)
        line = Line(server)
        line.send(get("/now/1")[:-2])
        loop.now += 1000
        server._sweep()
        assert server.now == 2
        assert not line.is_closed
        for _ in range(30):
            loop.now += 1
            loop.run()
        assert line.statuses() == [408]

    def test_thousands_of_connections_are_looked_at_in_slices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        server, loop = self.server(monkeypatch)
        looked: list[HttpConnection] = []
        monkeypatch.setattr(HttpConnection, "check_progress", lambda connection, now: looked.append(connection))
        lines = [Line(server) for _ in range(1200)]
        server._sweep()
        seen = [len(looked)]
        lines[1100].connection.connection_lost(None)
        while loop.soon:
            loop.run()
            seen.append(len(looked))
        assert seen == [500, 1000, 1199]
        assert len(loop.later) == 1, "the next sweep is due, once"

    def test_a_connection_that_cannot_be_checked_does_not_end_the_sweeps(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        server, loop = self.server(monkeypatch)
        bad, idle = Line(server), Line(server)
        monkeypatch.setattr(bad.transport, "get_write_buffer_size", lambda: 1 / 0)
        for _ in range(80):
            loop.now += 1
            server._sweep()
        assert idle.transport.closed
        assert "could not be checked" in caplog.text


class FakeLoop:
    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[tuple[object, ...]] = []
        self.later: list[tuple[object, ...]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, *call: object) -> None:
        self.soon.append(call)

    def call_later(self, delay: float, *call: object) -> None:
        self.later.append(call)

    def run(self) -> None:
        """Everything that is due: what should run soon, else what should run later."""
        if self.soon:
            due, self.soon = self.soon, []
        else:
            due, self.later = self.later, []
        for callback, *arguments in due:
            callback(*arguments)  # type: ignore[operator]


def test_a_connection_that_ended_is_gone_without_the_collector() -> None:
    def readers() -> int:
        return sum(type(thing) is RequestReader for thing in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = readers()
        line = Line()
        for _ in range(3):
            line.send(get("/now/1"))
        assert readers() == before + 1
        line.connection.connection_lost(None)
        del line
        assert readers() == before
    finally:
        gc.enable()


def test_as_many_files_may_be_open_as_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (1024, 4096)}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: limits.update(now=pair))
    allow_open_files(2000)
    assert limits["now"] == (2000, 4096)
    allow_open_files(100_000)
    assert limits["now"] == (4096, 4096)
    allow_open_files(10)
    assert limits["now"] == (4096, 4096), "never less than there was"
    limits["now"] = (1024, resource.RLIM_INFINITY)
    allow_open_files(100_000)
    assert limits["now"] == (100_000, resource.RLIM_INFINITY)
