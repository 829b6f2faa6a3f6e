"""Answers in parts: one JSON object to a line (NDJSON), or server-sent events; ended when the client goes.

The status is decided by the first part: an error before it has a status of its own, one after it
is the last part.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bident.errors import Code, ServeError
from bident.text.doors.status import Protocol, as_serve_error

T = TypeVar("T")

NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
DONE = b"data: [DONE]\n\n"
"""What ends OpenAI's streams."""

_STALL_SECONDS = 120.0
"""A client that takes nothing off its connection for so long would keep a slot of the model for ever."""


def line(value: Any) -> bytes:
    """One object of an NDJSON answer."""
    return orjson.dumps(value) + b"\n"


def event(value: Any) -> bytes:
    """One of OpenAI's server-sent events."""
    return b"data: " + orjson.dumps(value) + b"\n\n"


def named_event(value: Mapping[str, Any]) -> bytes:
    """A server-sent event that goes by the ``type`` of its object, as Anthropic's and those of OpenAI's responses."""
    return b"event: " + str(value["type"]).encode() + b"\n" + event(value)


async def until_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns; it is cancelled when the client goes. The body must have been read.

    Raises what ``work`` raises, and CANCELLED.
    """
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(gone(request.receive))
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ServeError(Code.CANCELLED, "the client went away")
    finally:
        await _end(task, leaving)


async def begun(request: Request, events: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """``events``, once the first of them is there. Raises what comes instead of it, and CANCELLED."""
    try:
        first = await until_gone(request, _first(events))
    except BaseException:
        await _close(events)
        raise
    return _resumed(first, events)


async def _first(events: AsyncIterator[T]) -> list[T]:
    async for each in events:
        return [each]
    return []


async def _resumed(first: list[T], events: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    try:
        for each in first:
            yield each
        async for each in events:
            yield each
    finally:
        await _close(events)


async def _close(events: AsyncIterator[Any]) -> None:
    if isinstance(events, AsyncGenerator):
        await events.aclose()


def streamed(
    parts: AsyncGenerator[bytes, None], media_type: str, protocol: Protocol, write: Callable[[Any], bytes]
) -> Response:
    """An answer of ``parts``; if they fail, ``protocol``'s error is the last one, as ``write`` writes it."""
    return _Streamed(_ended(parts, protocol, write), media_type, write(protocol.late(stopping())))


def stopping() -> ServeError:
    """What is said to a client whose answer takes longer than the server may take to stop."""
    return ServeError(Code.UNAVAILABLE, "the server is stopping, and the answer has been cut")


async def _ended(
    parts: AsyncGenerator[bytes, None], protocol: Protocol, write: Callable[[Any], bytes]
) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(parts):
        try:
            async for part in parts:
                yield part
        except Exception as error:  # noqa: BLE001 - whatever it is, the client must not take the answer for whole
            yield write(protocol.late(as_serve_error(error)))


class _Streamed(Response):
    """Sends each part at once, and stops making them when nobody takes them."""

    def __init__(self, parts: AsyncGenerator[bytes, None], media_type: str, cut: bytes) -> None:
        """``cut`` is the last part of an answer that is not finished because the server ends."""
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers({"cache-control": "no-cache"})
        self._parts = parts
        self._cut = cut
        self._sending_since: float | None = None
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing = asyncio.ensure_future(self._write(send))
        leaving = asyncio.ensure_future(gone(receive))
        try:
            while not writing.done() and not leaving.done() and not self._is_stalled():
                await asyncio.wait({writing, leaving}, timeout=_STALL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()
        except asyncio.CancelledError:  # by the server, at its end: nobody waits for this task's
            await _end(writing, leaving)
            if not self._begun:
                raise
            await send({"type": "http.response.body", "body": self._cut, "more_body": False})
        finally:
            await _end(writing, leaving)

    def _is_stalled(self) -> bool:
        since = self._sending_since
        return since is not None and time.monotonic() - since > _STALL_SECONDS

    async def _write(self, send: Send) -> None:
        async with contextlib.aclosing(self._parts) as parts:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            self._begun = True
            async for part in parts:
                self._sending_since = time.monotonic()
                await send({"type": "http.response.body", "body": part, "more_body": True})
                self._sending_since = None
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def gone(receive: Callable[[], Awaitable[Any]]) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what still runs, and wait for it: what it holds must be given back before the answer is over."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
