"""An HTTP/1.1 connection: bytes to exchanges, answers to bytes. Knows nothing of what is served.

``asyncio.Protocol`` over httptools: no task, future or coroutine per request. Whatever a client
sends, it gets a valid HTTP answer or a closed connection, and costs bounded memory and time: heads,
bodies, chunks, pipelined requests, slow writers and slow readers all have their limits.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import httptools

from bident.doors.http.exchange import Buffer, Exchange
from bident.doors.http.routes import Resource, Unrouted

if TYPE_CHECKING:
    from bident.doors.http.server import HttpServer

_MAX_PIPELINED = 64
_MAX_CHUNKS = 65536


class HttpConnection(asyncio.Protocol):
    """One client. ``busy_since`` and ``progress_at`` are read by the server's sweep for stalled clients."""

    __slots__ = (
        "_body",
        "_body_size",
        "_chunks",
        "_closing",
        "_exchange",
        "_fed",
        "_head_since",
        "_headers",
        "_limit",
        "_parser",
        "_pending",
        "_reading_paused",
        "_resource",
        "_server",
        "_target",
        "_transport",
        "_unrouted",
        "_writing_paused",
        "phase",
        "progress_at",
    )

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._parser = httptools.HttpRequestParser(self)
        self._pending: deque[Exchange] = deque()
        self._closing = False
        self._fed = 0
        self._reading_paused = False
        self._writing_paused = False
        self._head_since = server.now
        self.phase = "idle"
        """Where the client is: idle, head, body, or discard (its request is refused, the rest is not read)."""
        self.progress_at = server.now
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._body_size = 0
        self._chunks = 0
        self._limit = 0
        self._resource: Resource | None = None
        self._unrouted: Unrouted | None = None
        self._exchange: Exchange | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._server.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._server.disconnected(self)
        pending, self._pending = self._pending, deque()
        for exchange in pending:
            exchange.abandon()

    def eof_received(self) -> bool:
        """A client that has finished sending still gets the answers to what it sent."""
        if self._pending and not self._closing:
            self._pending[-1].keep_alive = False
            return True
        return False

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self.progress_at = self._server.now
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data, upgrade)
        except httptools.HttpParserError as error:
            if not self._closing:
                self._refuse(400, f"malformed HTTP request: {error}")
        if self.phase == "head" and self._fed > self._server.limits.head_bytes:
            self._head_too_large()

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._pace()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self.progress_at = self._server.now
        self._pace()

    # httptools

    def on_message_begin(self) -> None:
        self.phase = "head"
        self._head_since = self._server.now

    def on_url(self, url: bytes) -> None:
        self._target = self._target + url if self._target else url

    def on_header(self, name: bytes, value: bytes | None) -> None:
        self._headers[name.lower()] = value or b""

    def on_headers_complete(self) -> None:
        if self._closing:
            return
        self.phase = "body"
        parser = self._parser
        server = self._server
        method = parser.get_method()
        headers = self._headers
        keep_alive = parser.should_keep_alive() and not server.is_draining
        exchange = self._exchange = Exchange(self, method, self._target, headers, keep_alive)
        if b"connection" in headers:  # only a 1.0 client that asks for keep-alive has to be told apart
            exchange.http_1_0 = parser.get_http_version() == "1.0"
        if self._fed > server.limits.head_bytes and self._head_is_too_large():
            return
        found = server.routes.find(self._target, method)
        if not isinstance(found, Unrouted):
            self._resource, exchange.params = found
            self._limit = server.limits.json_bytes
            if b"inference-header-content-length" in headers and self._resource.binary:
                self._limit = server.limits.binary_bytes
            declared = headers.get(b"content-length")
            if declared is not None and int(declared) > self._limit:
                self._too_large(int(declared))
            elif b"expect" in headers:
                self._expect(headers[b"expect"], exchange)
        else:
            self._unrouted = found
            self._limit = server.limits.small_body
            if b"expect" in headers:
                self._refuse(found.status, found.message)

    def on_body(self, body: bytes) -> None:
        if self._closing:
            return
        self._body_size += len(body)
        if self._body_size > self._limit:
            self._too_large(self._body_size)
            return
        self._body.append(body)

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > _MAX_CHUNKS and not self._closing:
            self._refuse(400, f"the body has more than {_MAX_CHUNKS} chunks; send larger ones")

    def on_message_complete(self) -> None:
        exchange = self._exchange
        if self._closing or exchange is None:
            return
        self._fed = 0
        exchange.received_ns = time.monotonic_ns()
        body = self._body
        exchange.body = body[0] if len(body) == 1 else b"".join(body)
        resource = self._resource
        unrouted = self._unrouted
        self._begin()
        self.phase = "idle"
        self._pending.append(exchange)
        if len(self._pending) >= _MAX_PIPELINED:
            self._pace()
        if resource is not None:
            self._server.dispatch(resource, exchange)
        elif unrouted is not None:
            allow = [(b"Allow", b", ".join(unrouted.allow))] if unrouted.allow else []
            exchange.respond_error(unrouted.status, unrouted.message, extra=allow)

    # Answers

    def deliver(self, exchange: Exchange, data: Sequence[Buffer]) -> None:
        """Send ``data`` as the answer of ``exchange``, after the answers of those before it."""
        exchange.data = data
        pending = self._pending
        while pending and pending[0].data is not None:
            done = pending.popleft()
            assert done.data is not None
            if len(done.data) == 1:
                self._transport.write(done.data[0])
            else:
                self._transport.writelines(done.data)
            if not done.keep_alive or (self._server.is_draining and not pending):
                self._finish()
                return
        if self._reading_paused:
            self._pace()

    @property
    def owes_answer(self) -> bool:
        """Whether the client waits for an answer, or for the rest of one."""
        return bool(self._pending) or self._transport.get_write_buffer_size() > 0

    def check_progress(self, now: float) -> None:
        """Called by the server's sweep: close a connection whose client has stalled for too long."""
        limits = self._server.limits
        stalled = now - self.progress_at
        if self._writing_paused:
            if stalled > limits.write_seconds:
                self._transport.abort()
        elif self.phase == "discard":
            if stalled > limits.linger_seconds:
                self._transport.abort()
        elif self._closing or self._pending:
            return  # it is we who owe the next step
        elif self.phase == "idle":
            if stalled > limits.idle_seconds:
                self._transport.close()
        elif stalled > limits.read_seconds:
            self._refuse(408, f"no further byte of the request came for {limits.read_seconds:g} s")
        elif self.phase == "head" and now - self._head_since > limits.read_seconds:
            self._refuse(408, f"the head of the request was not complete after {limits.read_seconds:g} s")

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    # Inside

    def _head_is_too_large(self) -> bool:
        """Measure a head that came together with so many other bytes that it may be over the limit."""
        size = len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._headers.items())
        if size > self._server.limits.head_bytes:
            self._head_too_large()
            return True
        return False

    def _head_too_large(self) -> None:
        limit = self._server.limits.head_bytes
        self._refuse(431, f"the request's head is larger than {limit} bytes (--http-max-header-size)")

    def _too_large(self, size: int) -> None:
        status, message = self._server.limits.refusal(size, self._limit)
        self._refuse(status, message)

    def _expect(self, expectation: bytes, exchange: Exchange) -> None:
        if expectation.lower() != b"100-continue":
            self._refuse(417, f"expectation '{expectation.decode('latin-1')}' is not supported, only 100-continue")
        elif not self._pending and self._parser.get_http_version() != "1.0":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _refuse(self, status: int, message: str) -> None:
        """Answer an error to the request that is being read, and read no more of this connection."""
        exchange = self._exchange or Exchange(self, b"", self._target, {}, False)
        exchange.keep_alive = False
        self._exchange = None
        self._closing = True
        self._pending.append(exchange)
        exchange.respond_error(status, message)

    def _finish(self) -> None:
        """The last answer has been written: let the client read it before the connection goes.

        Closing at once would make the kernel reset a connection whose client is still sending, and
        the client would never see the answer.
        """
        self._closing = True
        unread = self.phase != "idle"
        self.phase = "discard"
        self.progress_at = self._server.now
        if unread and self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _ignore_upgrade(self, data: bytes, upgrade: Exception) -> None:
        """The request itself has been answered as HTTP/1.1; what follows it is read as HTTP/1.1 too."""
        self._parser = httptools.HttpRequestParser(self)
        rest = data[upgrade.args[0] :] if upgrade.args else b""
        if rest and not self._closing:
            self.data_received(rest)

    def _pace(self) -> None:
        """Read only while answers go out and not too many are owed."""
        should_pause = self._writing_paused or len(self._pending) >= _MAX_PIPELINED
        if should_pause == self._reading_paused or self._transport.is_closing():
            return
        self._reading_paused = should_pause
        if should_pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
