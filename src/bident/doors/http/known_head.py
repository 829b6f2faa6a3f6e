"""The head that a client sends over and over, recognised without parsing it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bident.doors.http.exchange import Exchange

if TYPE_CHECKING:
    from bident.doors.http.protocol import HttpConnection
    from bident.doors.http.routes import Resource

_END = b"\r\n\r\n"
_NAME = b"\r\ncontent-length:"
_MAX_HEAD = 4096
_MAX_DIGITS = 10


class KnownHead:
    """The head of a connection's last request, cut at the number of its ``Content-Length``.

    Clients that keep a connection send one request like the other: only that number and the body
    differ. A read that is exactly such a head and exactly such a body means what the parser said of
    the first one, and costs a third of what parsing it costs. Anything else is the parser's.
    """

    __slots__ = (
        "_after",
        "_before",
        "_digits",
        "_headers",
        "_limit",
        "_method",
        "_params",
        "_target",
        "has_repeated",
        "resource",
    )

    def __init__(
        self, before: bytes, digits: bytes, after: bytes, exchange: Exchange, resource: Resource, limit: int
    ) -> None:
        self._before = before
        self._digits = digits
        self._after = after
        self._limit = limit
        self._method = exchange.method
        self._target = exchange.target
        self._headers = exchange.headers
        self._params = exchange.params
        self.resource = resource
        """What serves the request."""
        self.has_repeated = False
        """Whether it has been worth learning."""

    @classmethod
    def learn(cls, read: bytes, exchange: Exchange, resource: Resource, limit: int) -> KnownHead | None:
        """The head of ``exchange``, if ``read`` is that request, from its first byte to its last, and a plain one."""
        headers = exchange.headers
        digits = headers.get(b"content-length", b"")
        size = len(read) - len(exchange.body)
        if (
            digits != b"%d" % len(exchange.body)
            or not len(_END) < size <= _MAX_HEAD
            or read.find(_END, 0, size) != size - len(_END)
            or not exchange.keep_alive
            or exchange.http_1_0
            or b"expect" in headers
        ):
            return None
        start = read[:size].lower().find(_NAME) + len(_NAME)
        while read[start] in b" \t":
            start += 1
        return cls(read[:start], digits, read[start + len(digits) : size], exchange, resource, limit)

    def repeated(self, connection: HttpConnection, read: bytes) -> Exchange | None:
        """The request in ``read``, if that is this head again with a whole body after it."""
        before, after = self._before, self._after
        if not read.startswith(before):
            return None
        start = len(before)
        end = read.find(after, start, start + _MAX_DIGITS + len(after))
        body = read[end + len(after) :]
        digits = read[start:end]
        if end < 0 or digits != b"%d" % len(body) or len(body) > self._limit:
            return None
        headers = self._headers
        if digits != self._digits:
            headers = {**headers, b"content-length": digits}
        self.has_repeated = True
        exchange = Exchange(connection, self._method, self._target, headers, True)
        exchange.params = self._params
        exchange.body = body
        return exchange
