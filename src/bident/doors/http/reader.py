"""One client's bytes to requests: heads, bodies, and the limits of what both may cost.

httptools (llhttp, strict) finds where messages begin and end and refuses what two readers could
read in two ways: repeated or signed lengths, a length beside a transfer coding, bare line feeds,
folded headers. What it leaves to its user is settled here.
"""

from __future__ import annotations

import logging
from time import monotonic_ns
from typing import TYPE_CHECKING

import httptools

from bident.doors.http.exchange import Exchange
from bident.doors.http.hints import malformed_hint
from bident.doors.http.known_head import KnownHead
from bident.doors.http.routes import Resource, Unrouted

if TYPE_CHECKING:
    from bident.doors.http.protocol import HttpConnection
    from bident.doors.http.server import HttpServer

logger = logging.getLogger("bident.http")

_CHUNK_FRAMING = 16
"""Bytes that the size line and the line end of an ordinary chunk take at most."""
_MAX_PIECES = 64
_UNUSUAL_BODY = 8 << 20
"""What larger bodies took is given back to the system."""
_CHANCES = 8
"""How many heads in a row are learnt from a client that never repeats one."""
_OF_UPGRADES = (b"upgrade", b"http2-settings")


class RequestReader:
    """The parser of one connection: hands it whole requests to ``accept``, and impossible ones to ``refuse``."""

    __slots__ = (
        "_begun_ns",
        "_chances",
        "_chunks",
        "_connection",
        "_fed",
        "_follows",
        "_headers",
        "_limit",
        "_parser",
        "_pieces",
        "_plain_head",
        "_route",
        "_sent_headers",
        "_server",
        "_size",
        "_target",
        "begun",
        "begun_at",
        "exchange",
        "known",
        "stopped",
        "whole",
    )

    def __init__(self, connection: HttpConnection, server: HttpServer) -> None:
        self._connection = connection
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self.stopped = False
        """Nothing that the client sends is looked at any more."""
        self.begun = False
        """Part of a request has come."""
        self._begun_ns = 0
        """When part of a request came, as long as the rest has not."""
        self.begun_at = 0.0
        """When its first part came, or, once stopped, when the last answer was written."""
        self.exchange: Exchange | None = None
        """That request, from the end of its head to the end of its body."""
        self.known: KnownHead | None = None
        """The head of the last request, while nothing of another one has come."""
        # A head that is recognised is not parsed, so its names are not seen.
        self._chances = 0 if server.keeps_names else _CHANCES
        self.whole: bytes | None = None
        """What has been received, while it is fed, if a request begins with its first byte: it may be just that."""
        self._fed = 0
        self._follows = False
        """It began in the same read as the one before it ended, so ``_fed`` does not count its first part."""
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._sent_headers: dict[bytes, bytes] | None = {} if server.keeps_names else None
        self._plain_head = b""
        self._route: Resource | Unrouted | None = None
        self._limit = 0
        self._pieces: list[bytes | bytearray] = []
        self._size = 0
        self._chunks = 0

    # For the connection

    def feed(self, data: bytes | memoryview) -> None:
        """Parse ``data``. If that completes requests they are accepted before this returns."""
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
            self._connection.refuse(500, "internal error in the server; its log has the details")
        except httptools.HttpParserError as error:
            if not self.stopped:
                self._connection.refuse_malformed(f"{error}{malformed_hint(data)}")
        if self.begun and not self.stopped:
            self._check_unfinished(len(data))

    @property
    def body_left(self) -> int:
        """How much of a body of declared length is still to come."""
        declared = self.exchange.headers.get(b"content-length") if self.exchange is not None else None
        return 0 if declared is None else int(declared) - self._size

    def close(self) -> None:
        """Stop for good, and let go of what holds on to this reader: it goes without waiting for the collector."""
        self.stop()
        del self._parser, self._connection

    def stop(self) -> None:
        """Read no more requests."""
        self.stopped = True
        self.known = None
        self.exchange = None
        self._pieces = []

    def take_unfinished(self) -> Exchange:
        """The request that is being read, or what there is of it, for an answer that ends the connection."""
        exchange = self.exchange or Exchange(self._connection, b"", self._target, {}, False)
        exchange.keep_alive = False
        return exchange

    # httptools

    def on_message_begin(self) -> None:
        self.begun = True
        self._follows = not self._fed
        known = self.known
        if known is not None:
            self.known = None
            if known.has_repeated:
                self._chances = _CHANCES
        self._target = b""
        self._headers = {}
        if self._sent_headers is not None:
            self._sent_headers = {}

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value
        if self._sent_headers is not None:
            self._sent_headers[name] = value

    def on_headers_complete(self) -> None:
        if self.stopped:
            return
        parser = self._parser
        headers = self._headers
        keep_alive = parser.should_keep_alive() and not self._server.is_draining
        exchange = Exchange(self._connection, parser.get_method(), self._target, headers, keep_alive)
        if self._sent_headers is not None:
            exchange.sent_headers = self._sent_headers
        if parser.should_upgrade():
            self._set_upgrade_aside(exchange)
            return
        self.exchange = exchange
        if not keep_alive or b"connection" in headers:  # else it can only be 1.1
            version = parser.get_http_version()
            exchange.http_1_0 = version == "1.0"
            if version not in ("1.0", "1.1"):
                self._connection.refuse(505, f"HTTP/{version} is not supported, only 1.1 and 1.0")
                return
        if b"host" not in headers and not exchange.http_1_0:
            self._connection.refuse(400, "the request has no Host header, which HTTP/1.1 requires")
            return
        # What has been fed is an upper bound, unless other requests came in the same read.
        limit = self._server.limits.head_bytes
        if (self._follows or self._fed > limit) and self._measured_head() > limit:
            self._refuse_head()
        else:
            self._find_route(exchange)

    def on_body(self, body: bytes) -> None:
        if self.exchange is None:
            return
        self._size += len(body)
        pieces = self._pieces
        if self._size > self._limit:
            self._refuse_body(self._size)
        elif len(pieces) < _MAX_PIECES:
            pieces.append(body)
        elif len(pieces) == _MAX_PIECES:
            # From here on one piece grows: many tiny ones would weigh more than what they hold.
            pieces.append(bytearray(body))
        else:
            pieces[-1] += body

    def on_chunk_header(self) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        self._chunks += 1
        if self._chunks == 1:
            self._headers = {}  # trailers end up there, never among the headers
            if self._sent_headers is not None:
                self._sent_headers = {}
            if exchange.http_1_0:
                exchange.keep_alive = False  # 1.0 has no chunks, so whoever sends them is not to be trusted further

    def on_message_complete(self) -> None:
        exchange = self.exchange
        if exchange is None:  # refused, or set aside to be read as a plain request
            return
        self.begun = False
        self.exchange = None
        self._fed = 0
        if self._begun_ns:
            exchange.begun_ns, self._begun_ns = self._begun_ns, 0
        pieces = self._pieces
        if pieces:
            if self._size > _UNUSUAL_BODY:
                self._server.trim_after(exchange)
            exchange.body = bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)
            self._pieces = []
        self._size = 0
        self._chunks = 0
        route = self._route
        if isinstance(route, Unrouted):
            self._connection.answer_unrouted(route, exchange)
        elif route is not None:
            if self._chances and self.whole is not None:
                self._chances -= 1
                self.known = KnownHead.learn(self.whole, exchange, route, self._limit)
            self._connection.accept(route, exchange)

    # Inside

    def _find_route(self, exchange: Exchange) -> None:
        """Find what serves the request, and refuse its body if that is already certain."""
        server = self._server
        headers = exchange.headers
        found = server.routes.find(exchange.target, exchange.method)
        if not isinstance(found, Unrouted):
            self._route, exchange.params = found
            if server.access is not None:
                found = server.refusal(self._route, headers) or found
        if isinstance(found, Unrouted):
            self._route = found
            self._limit = server.limits.small_body
        else:
            is_binary = found[0].binary and b"inference-header-content-length" in headers
            self._limit = server.limits.binary_bytes if is_binary else server.limits.json_bytes
        declared = headers.get(b"content-length")
        coding = headers.get(b"transfer-encoding")
        if declared is not None and int(declared) > self._limit:
            self._refuse_body(int(declared))
        elif coding is not None and coding.strip().lower() != b"chunked":
            self._connection.refuse(501, "the only transfer coding that is supported is 'chunked', and once")
        elif b"expect" in headers:
            self._meet_expectation(exchange)

    def _meet_expectation(self, exchange: Exchange) -> None:
        expectation = exchange.headers[b"expect"]
        if isinstance(self._route, Unrouted):
            self._connection.refuse_unrouted(self._route)
        elif expectation.strip().lower() != b"100-continue":
            text = expectation.decode("latin-1")
            self._connection.refuse(417, f"expectation '{text}' is not supported, only 100-continue")
        elif not exchange.http_1_0:
            self._connection.say_continue()

    def _set_upgrade_aside(self, exchange: Exchange) -> None:
        """Prepare to read a request without its offer to change protocols.

        The offer is declined. The parser takes all that follows it for the other protocol, also the
        request's body, so the request is read again, from a head that does not make it.
        """
        if exchange.method == b"CONNECT":
            self.exchange = exchange
            self._connection.refuse(501, "CONNECT is not supported: this server is no proxy")
            return
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (exchange.method, exchange.target, version)]
        for name, value in (exchange.sent_headers or exchange.headers).items():
            if name.lower() == b"connection":
                options = [option.strip() for option in value.split(b",")]
                value = b", ".join(option for option in options if option.lower() not in _OF_UPGRADES)  # noqa: PLW2901
            if name.lower() not in _OF_UPGRADES:
                lines.append(b"%b: %b" % (name, value))
        self._plain_head = b"\r\n".join([*lines, b"", b""])
        self._fed = 0

    def _check_unfinished(self, size: int) -> None:
        """Bound the head, and what a chunked body has beside its content, of a request that has come in part."""
        if self._fed in (0, size):  # its first byte was among the ``size`` that have been fed last
            self.begun_at = self._server.now
            self._begun_ns = monotonic_ns()
        limit = self._server.limits.head_bytes
        if self.exchange is None:
            if self._fed > limit:
                self._refuse_head()
        elif self._fed - self._size > 2 * limit + _CHUNK_FRAMING * self._chunks:
            self._connection.refuse(400, f"the body's trailers and chunk extensions are larger than {limit} bytes")

    def _measured_head(self) -> int:
        """The size of a head that came together with other bytes."""
        return len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._headers.items())

    def _refuse_head(self) -> None:
        limit = self._server.limits.head_bytes
        self._connection.refuse(431, f"the request's head is larger than {limit} bytes (--http-max-header-size)")

    def _refuse_body(self, size: int) -> None:
        if isinstance(self._route, Unrouted):
            self._connection.refuse_unrouted(self._route)
        else:
            self._connection.refuse(*self._server.limits.refusal(size, self._limit))
