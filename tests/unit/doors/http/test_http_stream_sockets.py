"""Event streams over real sockets, on the loop that the server uses."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from generate_house import events, generate_routes, read_whole, response, talk
from http_line import get, post

from bident.doors import listener as listener_module
from bident.doors.http import stream as stream_module
from bident.doors.http.limits import HttpLimits
from bident.doors.http.server import HttpServer
from bident.sockets import Listening, bind_all
from tests.unit.doors.played_engine import PlayedEngine, PlayedServable
from tests.unit.engine.engine_fakes import on_loop, until

ASK = post("/v2/models/talk/generate_stream", b'{"PLAN":"x"}')


class Site:
    """A server with the played model ``talk``, and one client."""

    def __init__(self, server: HttpServer, port: int, engine: PlayedEngine) -> None:
        self.server = server
        self.engine = engine
        self.servable = engine.servables["talk"]
        self._port = port
        self.sock = socket.socket()
        self.got = b""

    async def connect(self, receive_buffer: int = 0) -> None:
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(self.sock, ("127.0.0.1", self._port))

    async def ask(self, request: bytes = ASK) -> None:
        known = len(self.servable.requests)
        await asyncio.get_running_loop().sock_sendall(self.sock, request)
        await until(lambda: len(self.servable.requests) > known, "a request")

    def reply(self, *numbers: float, final: bool = False) -> None:
        request = self.servable.requests[-1]
        request.reply(response(request, list(numbers) or None, final=final))

    async def receive(self, ending: bytes) -> None:
        """Receive something, until the last bytes are ``ending``; empty for the connection's end."""
        while True:
            data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.sock, 1 << 20), 10)
            self.got += data
            if not data:
                assert not ending, self.got
            if not data or (ending and self.got.endswith(ending)):
                return


@contextlib.asynccontextmanager
async def playing(limits: HttpLimits | None = None) -> AsyncIterator[Site]:
    engine = PlayedEngine({"talk": PlayedServable(talk())})
    server = HttpServer(generate_routes(engine), limits or HttpLimits(), "test door")
    sock = bind_all([Listening("test door", "127.0.0.1", 0)])["test door"]
    await server.start(sock)
    site = Site(server, sock.getsockname()[1], engine)
    try:
        yield site
    finally:
        site.sock.close()
        await server.stop()


@on_loop
async def test_events_arrive_one_by_one_and_the_connection_is_kept() -> None:
    async with playing() as site:
        await site.connect()
        for turn in range(2):
            await site.ask()
            for number in range(3):
                site.reply(number)
                await site.receive(b"\n\n\r\n")
                *_, answer = read_whole(site.got)
                assert len(events(answer)) == number + 1
            site.reply(final=True)
            await site.receive(b"0\r\n\r\n")
            assert len(read_whole(site.got)) == turn + 1
        await asyncio.get_running_loop().sock_sendall(site.sock, get("/nowhere"))
        await site.receive(b"}")
        assert [answer.status for answer in read_whole(site.got)] == [200, 200, 404]


@on_loop
async def test_http_1_0_ends_with_the_connection() -> None:
    async with playing() as site:
        await site.connect()
        await site.ask(post("/v2/models/talk/generate_stream", b'{"PLAN":"x"}', version="1.0"))
        site.reply(1)
        site.reply(2, final=True)
        await site.receive(b"")
        (answer,) = read_whole(site.got)
        assert [event["NUMBERS"] for event in events(answer)] == [1, 2]


@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_closes_while_the_model_says_nothing_is_noticed(begun: bool) -> None:
    @on_loop
    async def run() -> None:
        async with playing() as site:
            await site.connect()
            await site.ask()
            if begun:
                site.reply(1)
                await site.receive(b"\n\n\r\n")
            site.sock.close()
            await until(lambda: site.engine.cancelled == site.servable.requests, "the cancellation")
            site.reply(2)
            site.reply(final=True)
            await until(lambda: site.server.connection_count == 0)

    run()


@on_loop
async def test_a_half_closed_client_gets_all_of_it() -> None:
    async with playing() as site:
        await site.connect()
        await site.ask()
        site.reply(1)
        await site.receive(b"\n\n\r\n")
        site.sock.shutdown(socket.SHUT_WR)
        await site.receive(b"\r\n0")  # the probe
        site.reply(2, 3)
        site.reply(final=True)
        await site.receive(b"")
        (answer,) = read_whole(site.got)
        assert answer.ended
        assert [event["NUMBERS"] for event in events(answer)] == [1, [2, 3]]
        assert site.engine.cancelled == []


@on_loop
async def test_many_megabytes_at_once_reach_a_client_that_reads() -> None:
    numbers = [1.0] * 500_000
    async with playing() as site:
        await site.connect()
        await site.ask()
        for _ in range(12):
            site.reply(*numbers)
        site.reply(final=True)
        await site.receive(b"\r\n0\r\n\r\n")
        (answer,) = read_whole(site.got)
        assert len(answer.body) > stream_module._MOST_UNSENT
        assert [len(event["NUMBERS"]) for event in events(answer)] == [500_000] * 12


def test_a_client_that_reads_nothing_costs_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_module, "_SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(stream_module, "_MOMENT_SECONDS", 0.05)
    monkeypatch.setattr(stream_module, "_MOST_UNSENT", 1 << 20)
    monkeypatch.setattr(stream_module, "MOST_AT_ONCE", 1 << 30)
    numbers = [1.0] * 10_000

    @on_loop
    async def run() -> None:
        async with playing() as site:
            await site.connect(receive_buffer=65536)
            await site.ask()
            (connection,) = site.server._connections
            most = 0

            def more() -> bool:
                nonlocal most
                site.reply(*numbers)
                if site.server.connection_count:
                    most = max(most, connection.unsent)
                return bool(site.engine.cancelled)

            await until(more, "the end of our patience")
            await until(lambda: site.server.connection_count == 0)
            assert 1 << 20 < most < 1 << 28

    run()
    assert "does not keep up with /v2/models/talk/generate_stream was cut off" in caplog.text


def test_a_client_that_stalls_is_cut_by_the_sweep(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_module, "_SWEEP_SECONDS", 0.01)
    numbers = [1.0] * 1000

    @on_loop
    async def run() -> None:
        async with playing(HttpLimits(write_seconds=0.1)) as site:
            await site.connect(receive_buffer=65536)
            await site.ask()

            def more() -> bool:
                site.reply(*numbers)
                return bool(site.engine.cancelled)

            await until(more, "the cut")
            await until(lambda: site.server.connection_count == 0)

    run()
    assert "keep up" not in caplog.text, "it was not for the amount"


@on_loop
async def test_a_stream_is_owed_while_the_server_drains() -> None:
    async with playing() as site:
        await site.connect()
        await site.ask()
        site.reply(1)
        site.server.is_draining = True
        assert site.server.owes_answers
        site.reply(2, final=True)
        await site.receive(b"")
        assert len(events(read_whole(site.got)[0])) == 2
        assert not site.server.owes_answers
