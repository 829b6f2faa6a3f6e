"""A request to a child's HTTP server and its answer, over a connection of its own.

A new connection on the loopback costs a tenth of a millisecond. In return none can have been closed by the other side
just when it is used again, and closing it is what frees the slot of an answer that nobody wants any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httptools
import orjson

from bident.errors import Code, ServeError
from bident.text.runner.process import Process

_READ_SIZE = 1 << 16
_ANSWER_LIMIT = 256 << 20
_ERROR_LIMIT = 1 << 16
_OK = range(200, 300)
_DEATH_SECONDS = 2.0
_DATA = b"data:"
_DONE = b"[DONE]"

_CODES = {
    400: Code.INVALID_ARG,
    404: Code.NOT_FOUND,
    501: Code.UNSUPPORTED,
    503: Code.UNAVAILABLE,
}
"""llama.cpp's statuses; whatever else is its failure."""


class Exchange:
    """One request and its answer. Raises ServeError throughout; ``close`` it in any case."""

    def __init__(self, process: Process) -> None:
        self.status = 0
        self._process = process
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._arrived: list[bytes] = []
        self._complete = False

    async def send(self, path: str, payload: bytes | None) -> None:
        """POST ``payload`` (JSON) to ``path``, or GET it without one; returns when the answer's head is there."""
        process = self._process
        method = "GET" if payload is None else "POST"
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {process.host}\r\nAuthorization: Bearer {process.key}\r\n"
            f"Connection: close\r\nContent-Type: application/json\r\nContent-Length: {len(payload or b'')}\r\n\r\n"
        )
        try:
            self._reader, self._writer = await asyncio.open_connection(process.host, process.port)
            self._writer.write(head.encode() + (payload or b""))
            await self._writer.drain()
        except OSError:
            raise await self._broken() from None
        while not self.status:
            await self._receive()
        if self.status not in _OK:
            raise refused(self.status, await self.whole(_ERROR_LIMIT))

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        while True:
            arrived, self._arrived = self._arrived, []
            for piece in arrived:
                yield piece
            if self._complete:
                return
            await self._receive()

    async def whole(self, limit: int = _ANSWER_LIMIT) -> bytes:
        """The whole body, which must not be larger than ``limit``."""
        body = bytearray()
        async for piece in self.pieces():
            body += piece
            _check_size(len(body), limit)
        return bytes(body)

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """The objects of a body of server-sent events. An ``error`` among them is raised."""
        rest = b""
        async for piece in self.pieces():
            *lines, rest = (rest + piece).split(b"\n")
            _check_size(len(rest), _ANSWER_LIMIT)
            for line in lines:
                data = line[len(_DATA) :].strip() if line.startswith(_DATA) else b""
                if data == _DONE:
                    return
                if data:
                    yield _event(data)

    def close(self) -> None:
        """Give up the connection, and with it what is still being computed for it."""
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None

    async def _receive(self) -> None:
        if self._reader is None or self._writer is None:
            raise ServeError(Code.CANCELLED, "the request was given up")
        try:
            data = await self._reader.read(_READ_SIZE)
        except OSError:
            data = b""
        if not data:
            raise await self._broken()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ServeError(Code.INTERNAL, f"llama.cpp answered what is no HTTP: {error}") from error

    async def _broken(self) -> ServeError:
        """What to say about a connection that has ended too early: most likely the process has, too."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._process.ended.wait(), _DEATH_SECONDS)
        how = self._process.how or "its process closed the connection"
        return ServeError(Code.INTERNAL, f"an error was encountered while running the model: {how}")

    # ------------------------------------------------------------------ called by the parser

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._arrived.append(body)

    def on_message_complete(self) -> None:
        self._complete = True


def refused(status: int, body: bytes) -> ServeError:
    """The error in llama.cpp's answer of ``status``."""
    try:
        error = orjson.loads(body)["error"]
        message = str(error["message"])
    except (ValueError, KeyError, TypeError):
        message = f"llama.cpp answered with status {status}: {body[:200].decode('utf-8', 'replace')}"
    return ServeError(_CODES.get(status, Code.INTERNAL), message)


def _event(data: bytes) -> dict[str, Any]:
    try:
        event = orjson.loads(data)
    except ValueError as error:
        raise ServeError(Code.INTERNAL, f"llama.cpp sent what is no JSON: {error}") from error
    if not isinstance(event, dict):
        raise ServeError(Code.INTERNAL, "llama.cpp sent JSON that is no object")
    if event.get("error"):
        status = event["error"].get("code", 500) if isinstance(event["error"], dict) else 500
        raise refused(status if isinstance(status, int) else 500, data)
    return event


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise ServeError(Code.INTERNAL, f"llama.cpp sent more than {limit} bytes at once")
