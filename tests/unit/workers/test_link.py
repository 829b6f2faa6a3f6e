"""The link between supervisor and worker: calls in both directions, and what happens when one end goes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bident.errors import Code, ServeError
from bident.workers.link import Link
from tests.unit.engine.engine_fakes import on_loop


class End:
    """One end, which answers with what its ``replies`` give for the verb."""

    def __init__(self) -> None:
        self.link = Link(self.serve, self.lost)
        self.replies: dict[str, Any] = {}
        self.has_lost = asyncio.Event()

    async def serve(self, verb: str, arguments: tuple[Any, ...]) -> Any:
        reply = self.replies[verb]
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Awaitable):
            return await reply
        return (reply, *arguments)

    def lost(self) -> None:
        self.has_lost.set()


@asynccontextmanager
async def both_ends() -> AsyncIterator[tuple[End, End]]:
    loop = asyncio.get_running_loop()
    made = (End(), End())
    for end, sock in zip(made, socket.socketpair(), strict=True):
        sock.setblocking(False)
        await loop.create_unix_connection(lambda end=end: end.link, sock=sock)
    yield made
    for end in made:
        end.link.close()


@on_loop
async def test_both_ends_ask_and_answer_side_by_side() -> None:
    async with both_ends() as (one, other):
        slow = asyncio.get_running_loop().create_future()
        other.replies = {"slow": slow, "double": "quick"}
        one.replies = {"back": "and forth"}
        waiting = asyncio.ensure_future(one.link.ask("slow"))
        assert await one.link.ask("double", 1, {"two": [3]}) == ("quick", 1, {"two": [3]})
        assert await other.link.ask("back") == ("and forth",)
        assert not waiting.done()
        slow.set_result("at last")
        assert await waiting == "at last"


@on_loop
async def test_large_messages_arrive_whole() -> None:
    async with both_ends() as (one, other):
        other.replies = {"echo": 1}
        blobs = [bytes([number]) * 3_000_000 for number in range(4)]
        answers = await asyncio.gather(*(one.link.ask("echo", blob) for blob in blobs))
        assert [answer[1] for answer in answers] == blobs


@on_loop
async def test_a_refusal_comes_over_with_its_code() -> None:
    async with both_ends() as (one, other):
        other.replies = {"no": ServeError(Code.NOT_FOUND, "there is none")}
        with pytest.raises(ServeError) as caught:
            await one.link.ask("no")
        assert (caught.value.code, caught.value.message) == (Code.NOT_FOUND, "there is none")


@on_loop
async def test_a_fault_is_an_answer_too_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with both_ends() as (one, other):
        other.replies = {"bug": ZeroDivisionError("secret"), "gone": ConnectionResetError()}
        with pytest.raises(ServeError) as caught:
            await one.link.ask("bug")
        assert caught.value.code is Code.INTERNAL
        assert "secret" not in caught.value.message
        assert "ZeroDivisionError" in caplog.text
        with pytest.raises(ServeError, match="has ended; ask again"):
            await one.link.ask("gone")


@on_loop
async def test_whoever_waits_for_an_end_that_goes_is_told_at_once() -> None:
    async with both_ends() as (one, other):
        other.replies = {"never": asyncio.get_running_loop().create_future()}
        waiting = asyncio.ensure_future(one.link.ask("never"))
        await asyncio.sleep(0)
        other.link.close()
        with pytest.raises(ConnectionError):
            await waiting
        await one.has_lost.wait()
        with pytest.raises(ConnectionError):
            await one.link.ask("anything")
