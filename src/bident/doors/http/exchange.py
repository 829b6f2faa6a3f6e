"""One HTTP request and the place of its answer in the connection's order."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import orjson

from bident.doors.http.status import LINE, STATUS
from bident.doors.http.stream import Stream
from bident.doors.pace import MOST_AT_ONCE
from bident.errors import ServeError

if TYPE_CHECKING:
    from bident.doors.http.protocol import HttpConnection
    from bident.wire.trace import Trace

logger = logging.getLogger("bident.http")

JSON = b"application/json"
_OK_JSON = LINE[200] + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"

_SMALL = 64 * 1024
"""Answers of up to this many bytes wait whatever else does."""

_LONGEST_MESSAGE = 1 << 20
"""Whoever makes a message cuts what it quotes; this is for what escaped their notice."""

Buffer = bytes | bytearray | memoryview


class Exchange:
    """What was asked (``method``, ``target``, ``headers`` with lower-case names, ``body``) and the way to answer.

    Exactly one of the ``respond`` methods is called, at any time, on the event loop, or a stream begun;
    answers leave in the order in which the requests came.
    """

    # Defaults live on the class: one is made per request, and most never differ from them.
    params: tuple[str, ...] = ()
    """What the target's pattern left open, in order."""
    body: bytes = b""
    received_ns: int = 0
    begun_ns: int = 0
    """When its first byte came, if not all of it came at once."""
    trace: Trace | None = None
    """Of the request in it, if that was sampled."""
    http_1_0: bool = False
    abandoned: bool = False
    data: Sequence[Buffer] | None = None
    """The answer, once there is one, or the end of a stream."""
    held: int = 0
    """How many bytes of the answer wait for the answers before it."""
    stream: Stream | None = None
    """The answer, if it comes piece by piece."""
    sent_headers: dict[bytes, bytes] | None = None
    """The headers with their names as the client wrote them, where the server keeps those."""
    on_abandon: Callable[[], None] | None = None
    """Called when the client goes before its answer is ready."""

    def __init__(
        self, connection: HttpConnection, method: bytes, target: bytes, headers: dict[bytes, bytes], keep_alive: bool
    ) -> None:
        self.connection = connection
        self.method = method
        self.target = target
        self.headers = headers
        self.keep_alive = keep_alive

    def respond_json(self, body: bytes) -> None:
        """Answer 200 with ``body``: the hot path."""
        if self.keep_alive and not self.http_1_0 and self.method != b"HEAD":
            if not self.abandoned:
                self.connection.deliver(self, (_OK_JSON % len(body) + body,))
        else:
            self.respond(200, (body,))

    def respond(
        self,
        status: int,
        body: Sequence[Buffer] = (),
        content_type: bytes = JSON,
        extra: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        """Answer ``status`` with the pieces of ``body`` (sent without joining them) and ``extra`` headers."""
        size = sum(len(piece) for piece in body)
        head = [LINE[status], b"Content-Type: %b\r\nContent-Length: %d\r\n" % (content_type, size)]
        head.extend(b"%b: %b\r\n" % pair for pair in extra)
        if not self.keep_alive:
            head.append(b"Connection: close\r\n")
        elif self.http_1_0:
            head.append(b"Connection: keep-alive\r\n")
        head.append(b"\r\n")
        pieces = () if self.method == b"HEAD" else body
        self._deliver((b"".join(head), *pieces))

    def respond_error(self, status: int, message: str, extra: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Answer ``{"error": message}``."""
        self.respond(status, (error_body(message),), extra=extra)

    def respond_failure(self, error: ServeError) -> None:
        """Answer with the status that ``error`` has over HTTP."""
        self.respond_error(STATUS[error.code], error.message)

    def respond_later(self, answering: Awaitable[None]) -> None:
        """Have ``answering`` run as a task; it calls one of the ``respond`` methods, or raises what went wrong."""
        self.connection.run(answering, self)

    def begin_stream(self, status: int, content_type: bytes) -> Stream:
        """Answer ``status`` with pieces that follow; ends with the stream's ``end``."""
        self.stream = Stream(self, status, content_type)
        return self.stream

    def abandon(self) -> None:
        """The client has gone: whatever is answered now goes nowhere."""
        self.abandoned = True
        on_abandon, self.on_abandon = self.on_abandon, None
        if on_abandon is not None:
            on_abandon()

    # For the connection and the stream: what waits for the client

    def may_wait(self, data: Sequence[Buffer], *, is_first: bool) -> bool:
        """Count ``data``, an answer that the client cannot take at once. One that has let too much wait is cut off.

        The answer itself does not count for that: however large it is, it may be the only one. Small
        ones, and what ends a stream, follow one that is large: they are few.
        """
        if self.data is not None:  # it has been answered
            return False
        waiting = self.connection.waiting
        if waiting > MOST_AT_ONCE and self.stream is None and sum(map(len, data)) > _SMALL:
            self.cut_off(waiting)
            return False
        if not is_first:
            self.hold(data)
        return True

    def hold(self, pieces: Sequence[Buffer]) -> None:
        """Count ``pieces`` of the answer, which wait for the answers before it."""
        size = sum(map(len, pieces))
        self.held += size
        self.connection.held += size

    def let_go(self) -> None:
        """What was held of the answer waits no longer."""
        self.connection.held -= self.held
        self.held = 0

    def cut_off(self, waiting: int) -> None:
        """End the connection of a client that lets ``waiting`` bytes wait; whatever it still asks is cancelled."""
        self.abandon()
        if not self.connection.is_closing:
            logger.warning(
                "a client that does not keep up with %s was cut off: %d bytes of answers waited for it",
                self.target.decode("latin-1"),
                waiting,
            )
            self.connection.abort()

    def _deliver(self, data: Sequence[Buffer]) -> None:
        if self.stream is not None:
            self.stream.break_off()  # part of an answer has been sent, which no other can follow
        elif not self.abandoned:
            self.connection.deliver(self, data)


def error_body(message: str) -> bytes:
    """The JSON of an error; a message that is not valid text loses only its bad characters, one too long its end."""
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}..."
    try:
        return orjson.dumps({"error": message})
    except TypeError:
        return orjson.dumps({"error": message.encode("utf-8", "replace").decode("utf-8")})
