"""One client's bytes to requests: heads, bodies, and the limits of what both may cost.

httptools (llhttp, strict) finds where messages begin and end and refuses what two readers could
read in two ways: repeated or signed lengths, a length beside a transfer coding, bare line feeds,
folded headers. What it leaves to its user is settled here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import httptools

from bident.doors.http.exchange import Exchange
from bident.doors.http.known_head import KnownHead
from bident.doors.http.routes import Resource, Unrouted

if TYPE_CHECKING:
    from bident.doors.http.protocol import HttpConnection
    from bident.doors.http.server import HttpServer

logger = logging.getLogger("bident.http")

_MAX_CHUNKS = 65536
_CHUNK_FRAMING = 16
"""Bytes that the size line and the line end of an ordinary chunk take at most."""
_MAX_PIECES = 64
_CHANCES = 8
"""How many heads in a row are learnt from a client that never repeats one."""
_OF_UPGRADES = (b"upgrade", b"http2-settings")


class RequestReader:
    """The parser of one connection. Whole requests go to its ``accept``, impossible ones to its ``refuse``."""

    __slots__ = (
        "_chances",
        "_chunks",
        "_connection",
        "_fed",
        "_headers",
        "_limit",
        "_parser",
        "_pieces",
        "_plain_head",
        "_route",
        "_server",
        "_size",
        "_target",
        "_whole",
        "begun",
        "begun_at",
        "exchange",
        "known",
        "stopped",
    )

    def __init__(self, connection: HttpConnection, server: HttpServer) -> None:
        self._connection = connection
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self.known: KnownHead | None = None
        """The head of the last request, while nothing of another one has come."""
        self._chances = _CHANCES
        self._whole: bytes | None = None
        """What has been received, if a request began with its first byte."""
        self.stopped = False
        """Nothing that the client sends is looked at any more."""
        self.begun = False
        """Part of a request has come."""
        self.begun_at = 0.0
        self.exchange: Exchange | None = None
        """That request, from the end of its head to the end of its body."""
        self._fed = 0
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._plain_head = b""
        self._route: Resource | Unrouted | None = None
        self._limit = 0
        self._pieces: list[bytes | bytearray] = []
        self._size = 0
        self._chunks = 0

    # For the connection

    def repeated(self, data: bytes) -> tuple[Resource, Exchange] | None:
        """The request in ``data`` if it is the last one's head again with a whole body. Needs ``known``."""
        known = self.known
        if known is None:
            return None
        exchange = known.repeated(self._connection, data)
        return None if exchange is None else (known.resource, exchange)

    def starts(self, data: bytes | None) -> None:
        """``data`` has been received and will be fed now; None: it has been fed, or some of it must wait."""
        self._whole = data if self._chances and not self.begun else None

    def feed(self, data: bytes | memoryview) -> None:
        """Parse ``data``, and hand over every request that it completes."""
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self.stopped:
                self._parser = httptools.HttpRequestParser(self)
                self.feed(self._plain_head)
                self.feed(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            logger.exception("%s: reading a request failed", self._server.name)
            self._refuse(500, "internal error in the server; its log has the details")
        except httptools.HttpParserError as error:
            if not self.stopped and not self._connection.ends_with_what_it_owes:
                self._refuse(400, f"malformed HTTP request: {error}")
        if self.begun and not self.stopped:
            self._check_unfinished(len(data))
