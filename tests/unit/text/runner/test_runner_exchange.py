"""What comes over the wire from a child, whole and in pieces, and when it breaks off."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from bident.errors import Code, ServeError
from bident.text.runner import exchange as exchange_module
from bident.text.runner.exchange import Exchange, refused

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunks(*pieces: bytes) -> bytes:
    return HEAD + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@asynccontextmanager
async def child(answer: bytes, *, bytewise: bool = False, how: str = ""):
    """A server that answers so to whatever comes, and the exchange with it."""
    asked = []

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        asked.append(head + await reader.readexactly(length))
        for piece in [answer[at : at + 1] for at in range(len(answer))] if bytewise else [answer]:
            writer.write(piece)
            await writer.drain()
            if bytewise:
                await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    ended = asyncio.Event()
    if how:
        ended.set()
    process = SimpleNamespace(
        host="127.0.0.1", port=server.sockets[0].getsockname()[1], key="secret", ended=ended, how=how
    )
    exchange = Exchange(process)
    try:
        yield exchange, asked
    finally:
        exchange.close()
        server.close()
        await server.wait_closed()


async def events(answer: bytes, **more):
    async with child(answer, **more) as (exchange, _):
        await exchange.send("/completion", b"{}")
        return [event async for event in exchange.events()]


def test_what_is_sent():
    async def run():
        async with child(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]") as (exchange, asked):
            await exchange.send("/tokenize", b'{"content":"x"}')
            assert await exchange.whole() == b"[]"
        [request] = asked
        head, _, body = request.partition(b"\r\n\r\n")
        assert head.startswith(b"POST /tokenize HTTP/1.1\r\n")
        assert b"\r\nAuthorization: Bearer secret\r\n" in head
        assert b"\r\nConnection: close\r\n" in head
        assert body == b'{"content":"x"}'

    asyncio.run(run())


@pytest.mark.parametrize("bytewise", [False, True])
def test_events_however_they_are_cut(bytewise):
    answer = chunks(b'data: {"a":1}\n\n:\n\ndata: {"b":"\xc3', b'\xa9"}\n', b"\nevent: x\ndata:{}\n\ndata: [DONE]\n\n")
    assert asyncio.run(events(answer, bytewise=bytewise)) == [{"a": 1}, {"b": "\u00e9"}, {}]


def test_an_event_that_is_an_error():
    answer = chunks(b'data: {"a":1}\n\ndata: {"error":{"code":500,"message":"Context size has been exceeded."}}\n\n')
    with pytest.raises(ServeError, match="Context size has been exceeded") as failed:
        asyncio.run(events(answer))
    assert failed.value.code is Code.INTERNAL


@pytest.mark.parametrize("data", [b"{", b"[1]", b"nonsense"])
def test_an_event_that_is_no_object(data):
    with pytest.raises(ServeError, match=r"llama\.cpp sent"):
        asyncio.run(events(chunks(b"data: " + data + b"\n\n")))


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200", HEAD, HEAD + b"5\r\nab"], ids=["nothing", "half a head", "a head", "half a chunk"]
)
def test_a_connection_that_breaks_off_is_a_crash(answer):
    with pytest.raises(
        ServeError, match=r"^an error was encountered while running the model: it was killed$"
    ) as broken:
        asyncio.run(events(answer, how="it was killed"))
    assert broken.value.code is Code.INTERNAL


def test_a_connection_that_breaks_off_though_the_process_lives(monkeypatch):
    monkeypatch.setattr(exchange_module, "_DEATH_SECONDS", 0.01)
    with pytest.raises(ServeError, match="running the model: its process closed the connection"):
        asyncio.run(events(HEAD))


def test_nobody_listens():
    async def run():
        async with child(b"", how="it died") as (exchange, _):
            exchange._process.port = 1
            await exchange.send("/completion", b"{}")

    with pytest.raises(ServeError, match="it died"):
        asyncio.run(run())


def test_no_http():
    with pytest.raises(ServeError, match="no HTTP"):
        asyncio.run(events(b"SSH-2.0\r\n\r\n"))


def test_too_much():
    async def run():
        async with child(chunks(b"x" * 1000)) as (exchange, _):
            await exchange.send("/completion", b"{}")
            await exchange.whole(limit=999)

    with pytest.raises(ServeError, match="more than 999 bytes"):
        asyncio.run(run())


def test_after_it_was_closed():
    async def run():
        async with child(chunks(b"data: {}\n\n")) as (exchange, _):
            await exchange.send("/completion", b"{}")
            exchange.close()
            await exchange._receive()

    with pytest.raises(ServeError, match="given up") as closed:
        asyncio.run(run())
    assert closed.value.code is Code.CANCELLED


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, Code.INVALID_ARG),
        (404, Code.NOT_FOUND),
        (501, Code.UNSUPPORTED),
        (503, Code.UNAVAILABLE),
        (500, Code.INTERNAL),
        (418, Code.INTERNAL),
    ],
)
def test_statuses(status, code):
    error = refused(status, b'{"error":{"message":"no","type":"x"}}')
    assert (error.code, error.message) == (code, "no")


@pytest.mark.parametrize("body", [b"", b"oops", b"[]", b'{"error":"x"}', b'{"error":null}', b"\xff" * 1000])
def test_an_error_that_says_nothing(body):
    assert refused(500, body).message.startswith("llama.cpp answered with status 500")
