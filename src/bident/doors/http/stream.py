"""An answer that is written piece by piece, for as long as whoever makes it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bident.doors.http.status import LINE
from bident.doors.pace import MOMENT_SECONDS as _MOMENT_SECONDS
from bident.doors.pace import MOST_AT_ONCE
from bident.doors.pace import MOST_UNSENT as _MOST_UNSENT

if TYPE_CHECKING:
    from bident.doors.http.exchange import Exchange

_JOINED = 64 * 1024
"""Up to this many bytes a piece is copied into its chunk, which costs less than sending it in three parts."""


class Stream:
    """The answer of one exchange: its head is written at once, ``write`` adds a piece, ``end`` is the end.

    HTTP/1.1 has the pieces as chunks; HTTP/1.0 has no chunks, there the connection's end is the
    answer's. While answers to earlier requests are owed, the pieces wait here. A client that takes
    them so slowly that too many wait is cut off, and the exchange abandoned.
    """

    __slots__ = ("_behind_since", "_chunked", "_exchange", "_has_body", "_waiting")

    def __init__(self, exchange: Exchange, status: int, content_type: bytes) -> None:
        self._exchange = exchange
        self._has_body = exchange.method != b"HEAD"
        self._chunked = not exchange.http_1_0
        self._waiting: list[bytes] = []
        self._behind_since = -1.0
        head = LINE[status] + b"Content-Type: " + content_type + b"\r\n"
        if self._chunked:
            head += b"Transfer-Encoding: chunked\r\n"
        else:
            exchange.keep_alive = False
        if not exchange.keep_alive:
            head += b"Connection: close\r\n"
        self._send(head + b"\r\n")

    @property
    def probe(self) -> bytes:
        """Bytes that mean nothing to a client that reads this answer, and make the kernel of one that has gone object.

        A leading zero of the next chunk's size. HTTP/1.0 has nothing of the kind.
        """
        return b"0" if self._chunked and self._has_body else b""

    def write(self, piece: bytes) -> None:
        """Add ``piece`` to the answer."""
        if not piece or not self._has_body or not self._is_open:
            return
        self._check_pace()
        if not self._chunked:
            self._send(piece)
        elif len(piece) <= _JOINED:
            self._send(b"%x\r\n%b\r\n" % (len(piece), piece))
        else:
            self._send(b"%x\r\n" % len(piece), piece, b"\r\n")

    def end(self) -> None:
        """Nothing more follows."""
        if self._is_open:
            last = b"0\r\n\r\n" if self._chunked and self._has_body else b""
            self._exchange.connection.deliver(self._exchange, (*self._take_waiting(), last))

    def break_off(self) -> None:
        """The rest cannot be written: only a cut connection tells the client so."""
        if self._is_open:
            self._exchange.abandon()
            self._exchange.connection.abort()

    def release(self) -> None:
        """Its turn has come: send what has been waiting for it."""
        if self._waiting:
            self._send(*self._take_waiting())

    @property
    def _is_open(self) -> bool:
        return self._exchange.data is None and not self._exchange.abandoned

    def _send(self, *pieces: bytes) -> None:
        if self._exchange.abandoned:
            return
        if not self._exchange.connection.deliver_part(self._exchange, pieces):
            self._waiting += pieces
            self._exchange.hold(pieces)

    def _take_waiting(self) -> list[bytes]:
        waiting, self._waiting = self._waiting, []
        self._exchange.let_go()
        return waiting

    def _check_pace(self) -> None:
        """Cut off a client that does not keep up.

        A model may make a lot in a moment, faster than any client takes it; so the measure is what
        still waits a moment later: all that the connection owes, whichever answer it is of.
        """
        connection = self._exchange.connection
        waiting = connection.waiting
        if waiting <= _MOST_UNSENT:
            self._behind_since = -1.0
            return
        if self._behind_since < 0:
            self._behind_since = connection.now
        if waiting > MOST_AT_ONCE or connection.now - self._behind_since > _MOMENT_SECONDS:
            self._exchange.cut_off(waiting)
