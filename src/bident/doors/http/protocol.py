"""An HTTP/1.1 connection: requests in, answers out in their order. Knows nothing of what is served.

``asyncio.Protocol`` over httptools: no task, future or coroutine per request. Whatever a client
sends, it gets a valid HTTP answer or a closed connection, and costs bounded memory and time: heads,
bodies, chunks, pipelined requests, slow writers and slow readers all have their limits.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING

from bident.doors.http.exchange import Buffer, Exchange
from bident.doors.http.reader import RequestReader
from bident.doors.http.routes import Resource, Unrouted

if TYPE_CHECKING:
    from bident.doors.http.server import HttpServer

_MAX_PIPELINED = 64
_MAX_PIPELINED_BYTES = 1 << 20
_SMALL = 1024
"""Up to this many bytes are parsed in one go, however many requests they hold."""
_TURN_NS = 20_000
"""How long one client's requests may keep the loop before other connections get their turn."""
_PROBE_SECONDS = 0.2
"""How long after its last byte a client that waits is asked whether it is still there, and how long that takes."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpConnection(asyncio.Protocol):
    """One client: what it is owed, and at which pace it is read and written.

    What has been received and may not be parsed yet, because enough is owed already, waits in
    ``_backlog``; nothing more is received until that is empty.
    """

    __slots__ = (
        "_backlog",
        "_backlog_at",
        "_has_turn",
        "_pending",
        "_progress_at",
        "_reader",
        "_receiving_paused",
        "_sender_done",
        "_sending_paused",
        "_server",
        "_transport",
        "_unsent",
        "held",
    )

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._reader = RequestReader(self, server)
        self._pending: deque[Exchange] = deque()
        self._backlog = b""
        self._backlog_at = 0
        self._has_turn = False
        """Whether the backlog is being worked off, or will be without a further event."""
        self._receiving_paused = False
        self._sending_paused = False
        self._sender_done = False
        """The client will send nothing more."""
        self._progress_at = server.now
        self._unsent = 0
        self.held = 0
        """How many bytes of answers wait for the answers before them."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._server.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.disconnected(self)
        self._stop_reading()
        self._abandon_pending()
        self._reader.close()

    def eof_received(self) -> bool:
        """A client that has finished sending still gets the answers to what it sent."""
        self._sender_done = True
        if not self._reader.stopped:
            if self._reader.begun:
                self.refuse(400, "the client stopped sending before its request was complete")
            elif self._pending:
                self._pending[-1].keep_alive = False
        if self._pending:
            self._server.call_later(_PROBE_SECONDS, self._probe)
        # Over TLS there is no half of a connection: who has said goodbye gets nothing more.
        return bool(self._pending) and self._transport.can_write_eof()

    def data_received(self, data: bytes) -> None:
        server = self._server
        self._progress_at = server.now
        reader = self._reader
        known = reader.known
        if known is not None and not server.is_draining:
            exchange = known.repeated(self, data)
            if exchange is not None:
                if server.access is None or (refused := server.refusal(known.resource, exchange.headers)) is None:
                    self.accept(known.resource, exchange)
                else:
                    self.answer_unrouted(refused, exchange)
                return
        if reader.stopped:
            return
        reader.whole = None if reader.begun else data
        if len(data) <= _SMALL:
            reader.feed(data)
        else:
            self._backlog = data
            self._work_off_backlog()
        reader.whole = None

    def pause_writing(self) -> None:
        self._sending_paused = True
        self._pace()

    def resume_writing(self) -> None:
        self._sending_paused = False
        self._pace()

    # For the reader

    def accept(self, resource: Resource, exchange: Exchange) -> None:
        """Have a whole request served."""
        exchange.received_ns = monotonic_ns()
        pending = self._pending
        pending.append(exchange)
        if len(pending) > 1 and (len(pending) >= _MAX_PIPELINED or len(exchange.body) > _SMALL):
            self._pace()
        self._server.dispatch(resource, exchange)

    def run(self, answering: Awaitable[None], exchange: Exchange) -> None:
        """Have ``answering``, which answers ``exchange``, run as a task."""
        self._server.run(answering, exchange)

    def answer_unrouted(self, route: Unrouted, exchange: Exchange) -> None:
        """Answer a whole request that nothing serves."""
        self._pending.append(exchange)
        exchange.respond_error(route.status, route.message, route.headers)

    def say_continue(self) -> None:
        """Ask the client for the body it holds back, once what it asked before has been answered."""
        interim = Exchange(self, b"", b"", {}, True)
        self._pending.append(interim)
        self.deliver(interim, (_CONTINUE,))

    def refuse(self, status: int, message: str, extra: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Answer an error to the request that is being read, and read no more of this connection."""
        if self._reader.stopped:
            return
        exchange = self._reader.take_unfinished()
        self._stop_reading()
        self._pending.append(exchange)
        exchange.respond_error(status, message, extra)

    def refuse_unrouted(self, route: Unrouted) -> None:
        """Answer a request that nothing serves without reading its body."""
        self.refuse(route.status, route.message, route.headers)

    def refuse_malformed(self, reason: str) -> None:
        """Refuse bytes that are no request."""
        if self._pending and not self._pending[-1].keep_alive:
            self._stop_reading()  # they follow a request that said it was the last, so they ask for nothing
        else:
            self.refuse(400, f"malformed HTTP request: {reason}")

    # Answers

    def deliver(self, exchange: Exchange, data: Sequence[Buffer]) -> None:
        """Send ``data`` as the answer of ``exchange``, after the answers of those before it."""
        pending = self._pending
        is_first = not pending or pending[0] is exchange
        if (self._sending_paused or not is_first) and not exchange.may_wait(data, is_first=is_first):
            return
        exchange.data = data
        while pending:
            first = pending[0]
            pieces = first.data
            if pieces is None:
                if first.stream is not None:
                    first.stream.release()
                break
            pending.popleft()
            if first.held:
                first.let_go()
            if len(pieces) == 1:
                self._transport.write(pieces[0])
            else:
                self._transport.writelines(pieces)
            if not first.keep_alive or (self._server.is_draining and not pending and not self._reader.begun):
                self._finish()
                return
        if self._receiving_paused:
            self._pace()

    def deliver_part(self, exchange: Exchange, pieces: Sequence[Buffer]) -> bool:
        """Send part of the answer of ``exchange``, if those before it have been sent; returns whether that is so."""
        if self._pending[0] is not exchange:
            return False
        # For the sweep: what has been added must not look like what has been sent.
        self._unsent += sum(map(len, pieces))
        self._transport.writelines(pieces)
        return True

    @property
    def waiting(self) -> int:
        """How many bytes of answers there are that the client has not taken, sent or waiting for their turn."""
        return self.held + self.unsent

    @property
    def is_closing(self) -> bool:
        """Whether the connection has been closed or cut, though perhaps nobody has been told yet."""
        return self._transport.is_closing()

    @property
    def unsent(self) -> int:
        """How many bytes have been written that the client has not taken."""
        return self._transport.get_write_buffer_size()

    @property
    def now(self) -> float:
        """The server's time."""
        return self._server.now

    @property
    def owes_answer(self) -> bool:
        """Whether the client waits for an answer, or for the rest of one."""
        return bool(self._pending) or self.unsent > 0

    def check_progress(self, now: float) -> None:
        """Called by the server's sweep: close a connection whose client has stalled for too long."""
        reader = self._reader
        unsent = self._transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent = unsent
            self._progress_at = now
        if unsent:
            if now - self._progress_at > self._server.limits.write_seconds:
                self._transport.abort()
            elif reader.stopped:
                reader.begun_at = now
        elif self._pending or self._backlog:
            self._progress_at = now  # it is we who owe the next step
            if self._sender_done:
                self._abort_if_gone()
        elif reader.stopped:
            if now - reader.begun_at > self._server.limits.linger_seconds:
                self._transport.abort()
        else:
            self._check_sender(now)

    def _check_sender(self, now: float) -> None:
        limits = self._server.limits
        reader = self._reader
        stalled = now - self._progress_at
        if not reader.begun:
            if 0 < limits.idle_seconds < stalled:
                self._stop_reading()
                self._transport.close()
        elif 0 < limits.read_seconds < stalled:
            self.refuse(408, f"no further byte of the request came for {limits.read_seconds:g} s")
        elif reader.exchange is None and 0 < limits.read_seconds < now - reader.begun_at:
            self.refuse(408, f"the head of the request was not complete after {limits.read_seconds:g} s")

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    # Inside

    def _finish(self) -> None:
        """The last answer has been written: let the client read it before the connection goes.

        Closing at once would make the kernel reset a connection whose client is still sending, and
        the client would never see the answer. It closes when it has read that this was the last.
        """
        self._stop_reading()
        self._abandon_pending()
        self._reader.begun_at = self._server.now
        if self._sender_done or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()
            self._pace()

    def _probe(self) -> None:
        """See whether a client that has finished sending and waits for an answer is still there.

        One that has closed its socket looks the same until something is sent to it. 100 (Continue)
        tells a client that has sent everything nothing, and the kernel of one that has gone answers
        it with a reset. So requests that nobody waits for are not run. Where a stream is under way it
        has bytes for that purpose.
        """
        if self._pending and not self._transport.is_closing():
            first = self._pending[0]
            if first.stream is not None:
                self._transport.write(first.stream.probe)
            elif not first.http_1_0:
                self._transport.write(_CONTINUE)
            self._server.call_later(_PROBE_SECONDS, self._abort_if_gone)

    def _abort_if_gone(self) -> None:
        transport = self._transport
        if transport.is_closing():
            return
        if transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            transport.abort()

    def _stop_reading(self) -> None:
        self._reader.stop()
        self._backlog = b""
        self._backlog_at = 0

    def _abandon_pending(self) -> None:
        pending, self._pending = self._pending, deque()
        self.held = 0
        for exchange in pending:
            exchange.abandon()

    def _work_off_backlog(self) -> None:
        """Parse what has been received, one request at a time, until the client has had its share."""
        self._has_turn = True
        end_ns = monotonic_ns() + _TURN_NS
        while self._backlog and not self._must_wait() and monotonic_ns() < end_ns:
            data, start = self._backlog, self._backlog_at
            self._backlog_at = stop = self._end_of_step(data, start)
            if stop == len(data):
                self._backlog = b""
                self._backlog_at = 0
            self._reader.feed(memoryview(data)[start:stop])
        self._has_turn = False
        if self._backlog or self._receiving_paused:
            self._pace()

    def _end_of_step(self, data: bytes, start: int) -> int:
        """How far to parse in one go: at most to the end of one head or one body."""
        body_left = self._reader.body_left
        if body_left:
            return min(len(data), start + body_left)
        end = data.find(b"\r\n\r\n", start)
        return len(data) if end < 0 else end + 4

    def _must_wait(self) -> bool:
        """Whether enough is owed to this client for now."""
        pending = self._pending
        return self._sending_paused or (
            len(pending) > 1
            and (
                len(pending) >= _MAX_PIPELINED
                or sum([len(exchange.body) for exchange in pending]) > _MAX_PIPELINED_BYTES
            )
        )

    def _pace(self) -> None:
        """Receive only while what has come is parsed, answers go out, and not too many are owed."""
        must_wait = not self._reader.stopped and self._must_wait()
        if self._backlog and not must_wait and not self._has_turn:
            self._has_turn = True
            self._server.call_soon(self._work_off_backlog)
        should_pause = must_wait or bool(self._backlog)
        if should_pause == self._receiving_paused or self._transport.is_closing():
            return
        self._receiving_paused = should_pause
        if should_pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
