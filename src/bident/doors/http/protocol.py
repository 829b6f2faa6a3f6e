"""An HTTP/1.1 connection: bytes to exchanges, answers to bytes. Knows nothing of what is served.

``asyncio.Protocol`` over httptools: no task, future or coroutine per request. Whatever a client
sends, it gets a valid HTTP answer or a closed connection, and costs bounded memory and time: heads,
bodies, chunks, pipelined requests, slow writers and slow readers all have their limits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING

import httptools

from bident.doors.http.exchange import Buffer, Exchange
from bident.doors.http.known_head import KnownHead
from bident.doors.http.routes import Resource, Unrouted

if TYPE_CHECKING:
    from bident.doors.http.server import HttpServer

logger = logging.getLogger("bident.http")

_MAX_PIPELINED = 64
_MAX_PIPELINED_BYTES = 1 << 20
_MAX_CHUNKS = 65536
_CHUNK_FRAMING = 16
"""Bytes that the size line and line end of an ordinary chunk take at most."""
_MAX_PIECES = 64
_SMALL_READ = 1024
"""Up to this many bytes are parsed in one go, however many requests they hold."""
_TURN_NS = 2_000_000
"""How long one client's requests may keep the loop before other connections get their turn."""
_CHANCES = 8
"""How many heads in a row are learnt from a client that never repeats one."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpConnection(asyncio.Protocol):
    """One client.

    The parser's callbacks build an exchange; :meth:`deliver` sends the answers in order. What has
    been read and may not be parsed yet, because enough is owed already, waits in ``_backlog``, and
    nothing more is read until that is empty.
    """

    __slots__ = (
        "_backlog",
        "_backlog_at",
        "_begun",
        "_begun_at",
        "_chances",
        "_chunks",
        "_closing",
        "_ended",
        "_exchange",
        "_fed",
        "_headers",
        "_known",
        "_limit",
        "_parser",
        "_pending",
        "_pieces",
        "_plain_head",
        "_progress_at",
        "_read",
        "_reading_paused",
        "_route",
        "_server",
        "_size",
        "_target",
        "_transport",
        "_turn_is_due",
        "_unsent",
        "_writing_paused",
    )

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._parser = httptools.HttpRequestParser(self)
        self._known: KnownHead | None = None
        """The head of the last request, while nothing of another one has come."""
        self._chances = _CHANCES
        self._read: bytes | None = None
        """What is being parsed, if a request begins with its first byte."""
        # The request that is being read.
        self._begun = False
        self._begun_at = 0.0
        self._fed = 0
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._plain_head = b""
        self._exchange: Exchange | None = None
        """Set from the end of the head to the end of the body; not if the request has been refused."""
        self._route: Resource | Unrouted | None = None
        self._limit = 0
        self._pieces: list[bytes | bytearray] = []
        self._size = 0
        self._chunks = 0
        # What is owed, and the pace.
        self._pending: deque[Exchange] = deque()
        self._backlog = b""
        self._backlog_at = 0
        self._turn_is_due = False
        self._reading_paused = False
        self._writing_paused = False
        self._closing = False
        """Nothing that the client sends is looked at any more."""
        self._ended = False
        """The client will send nothing more."""
        self._progress_at = server.now
        self._unsent = 0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._server.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.disconnected(self)
        self._stop_parsing()
        self._abandon_pending()

    def eof_received(self) -> bool:
        """A client that has finished sending still gets the answers to what it sent."""
        self._ended = True
        if not self._closing:
            if self._begun:
                self._refuse(400, "the connection was closed for sending before the request was complete")
            elif self._pending:
                self._pending[-1].keep_alive = False
        return bool(self._pending)

    def data_received(self, data: bytes) -> None:
        server = self._server
        self._progress_at = server.now
        known = self._known
        if known is not None and not server.is_draining:
            exchange = known.repeated(self, data)
            if exchange is not None:
                self._chances = _CHANCES
                self._accept(known.resource, exchange)
                return
        if self._closing:
            return
        if not self._begun and self._chances:
            self._read = data
        if len(data) <= _SMALL_READ:
            self._feed(data)
        else:
            self._backlog = data
            self._backlog_at = 0
            self._take_turn()
        self._read = None

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._pace()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._pace()

    # httptools

    def on_message_begin(self) -> None:
        self._begun = True
        self._known = None
        self._target = b""
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._closing:
            return
        parser = self._parser
        method = parser.get_method()
        headers = self._headers
        keep_alive = parser.should_keep_alive() and not self._server.is_draining
        exchange = Exchange(self, method, self._target, headers, keep_alive)
        if parser.should_upgrade():
            self._read_as_plain(exchange)
            return
        self._exchange = exchange
        if not keep_alive or b"connection" in headers:  # else it can only be 1.1
            version = parser.get_http_version()
            if version not in ("1.0", "1.1"):
                self._refuse(505, f"HTTP/{version} is not supported, only 1.1 and 1.0")
                return
            exchange.http_1_0 = version == "1.0"
        if self._fed > self._server.limits.head_bytes and self._head_is_too_large():
            return
        self._find_route(exchange)
        self._admit_body(exchange)

    def on_body(self, body: bytes) -> None:
        if self._exchange is None:
            return
        self._size += len(body)
        pieces = self._pieces
        if self._size > self._limit:
            self._too_large(self._size)
        elif len(pieces) < _MAX_PIECES:
            pieces.append(body)
        elif len(pieces) == _MAX_PIECES:
            # From here on one piece grows: many tiny ones would weigh more than what they hold.
            pieces.append(bytearray(body))
        else:
            pieces[-1] += body

    def on_chunk_header(self) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        self._chunks += 1
        if self._chunks == 1:
            self._headers = {}  # trailers end up there, never among the headers
            exchange.keep_alive = exchange.keep_alive and not exchange.http_1_0  # 1.0 knows no chunks: RFC 9112, 6.1
        elif self._chunks > _MAX_CHUNKS:
            self._refuse(400, f"the body has more than {_MAX_CHUNKS} chunks; send larger ones")

    def on_message_complete(self) -> None:
        self._begun = False
        self._fed = 0
        exchange = self._exchange
        if exchange is None:  # refused, or about to be read again without its upgrade
            return
        self._exchange = None
        pieces = self._pieces
        if pieces:
            exchange.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._pieces = []
            self._size = 0
            self._chunks = 0
        route = self._route
        if isinstance(route, Resource):
            if self._read is not None:
                self._chances -= 1
                self._known = KnownHead.learn(self._read, exchange, route, self._limit)
            self._accept(route, exchange)
            if len(exchange.body) > _SMALL_READ and len(self._pending) > 1:
                self._pace()
        elif route is not None:
            self._pending.append(exchange)
            exchange.respond_error(route.status, route.message, extra=_allow(route))

    # Answers

    def deliver(self, exchange: Exchange, data: Sequence[Buffer]) -> None:
        """Send ``data`` as the answer of ``exchange``, after the answers of those before it."""
        exchange.data = data
        pending = self._pending
        while pending:
            done = pending[0]
            pieces = done.data
            if pieces is None:
                break
            pending.popleft()
            if len(pieces) == 1:
                self._transport.write(pieces[0])
            else:
                self._transport.writelines(pieces)
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
        unsent = self._transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent = unsent
            self._progress_at = now
        stalled = now - self._progress_at
        if unsent:
            if stalled > limits.write_seconds:
                self._transport.abort()
        elif self._pending or self._backlog:
            self._progress_at = now  # it is we who owe the next step
        elif self._closing:
            if stalled > limits.linger_seconds:
                self._transport.abort()
        elif not self._begun:
            if 0 < limits.idle_seconds < stalled:
                self._stop_parsing()
                self._transport.close()
        elif 0 < limits.read_seconds < stalled:
            self._refuse(408, f"no further byte of the request came for {limits.read_seconds:g} s")
        elif self._exchange is None and 0 < limits.read_seconds < now - self._begun_at:
            self._refuse(408, f"the head of the request was not complete after {limits.read_seconds:g} s")

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    # Reading

    def _feed(self, data: bytes | memoryview) -> None:
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._closing:
                self._parser = httptools.HttpRequestParser(self)
                self._feed(self._plain_head)
                self._feed(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            logger.exception("%s: reading a request failed", self._server.name)
            self._refuse(500, "internal error in the server; its log has the details")
        except httptools.HttpParserError as error:
            self._malformed(error)
        if self._begun and not self._closing:
            self._check_unfinished(len(data))

    def _malformed(self, error: Exception) -> None:
        if self._closing:
            return
        if self._pending and not self._pending[-1].keep_alive:
            # Bytes after a request that announced itself as the last: they ask for nothing.
            self._begun = True
            self._stop_parsing()
        else:
            self._refuse(400, f"malformed HTTP request: {error}")

    def _check_unfinished(self, size: int) -> None:
        """Bound the head, and what a chunked body has beside its content, of a request read in part."""
        fed = self._fed
        if fed in (0, size):  # what has been fed last, of ``size`` bytes, had this request's first one
            self._begun_at = self._server.now
        limit = self._server.limits.head_bytes
        if self._exchange is None:
            if fed > limit:
                self._head_too_large()
        elif fed - self._size > 2 * limit + _CHUNK_FRAMING * self._chunks:
            self._refuse(400, f"the trailers and chunk extensions of the body are larger than {limit} bytes")

    def _take_turn(self) -> None:
        """Parse what has been read, one request at a time, until the client has had its share."""
        self._turn_is_due = False
        data = memoryview(self._backlog)
        began = monotonic_ns()
        while self._backlog_at < len(data) and not self._must_wait():
            if monotonic_ns() - began > _TURN_NS:
                self._turn_is_due = True
                self._server.call_soon(self._take_turn)
                break
            start, self._backlog_at = self._backlog_at, self._end_of_step()
            self._feed(data[start : self._backlog_at])
        if self._backlog_at >= len(data):
            self._backlog = b""
            self._backlog_at = 0
        if self._backlog or self._reading_paused:
            self._pace()

    def _end_of_step(self) -> int:
        """How far to parse in one go: at most to the end of one head or one body."""
        data, start = self._backlog, self._backlog_at
        declared = self._exchange.headers.get(b"content-length") if self._exchange is not None else None
        if declared is not None:
            return min(len(data), start + int(declared) - self._size)
        end = data.find(b"\r\n\r\n", start)
        return len(data) if end < 0 else end + 4

    def _must_wait(self) -> bool:
        """Whether enough is owed to this client for now."""
        pending = self._pending
        return (
            self._writing_paused
            or len(pending) >= _MAX_PIPELINED
            or (len(pending) > 1 and sum(len(exchange.body) for exchange in pending) > _MAX_PIPELINED_BYTES)
        )

    def _pace(self) -> None:
        """Read on only when what has been read is parsed, answers go out, and not too many are owed."""
        must_wait = self._must_wait()
        if self._backlog and not must_wait and not self._turn_is_due:
            self._turn_is_due = True
            self._server.call_soon(self._take_turn)
        should_pause = must_wait or bool(self._backlog)
        if should_pause == self._reading_paused or self._transport.is_closing():
            return
        self._reading_paused = should_pause
        if should_pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # One request

    def _accept(self, resource: Resource, exchange: Exchange) -> None:
        exchange.received_ns = monotonic_ns()
        pending = self._pending
        pending.append(exchange)
        if len(pending) >= _MAX_PIPELINED:
            self._pace()
        self._server.dispatch(resource, exchange)
