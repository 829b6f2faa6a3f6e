"""One client's connection to an HTTP door without a network: what it sends, what it gets."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass

from bident.doors.http.exchange import Exchange
from bident.doors.http.limits import HttpLimits
from bident.doors.http.protocol import HttpConnection
from bident.doors.http.routes import Routes
from bident.doors.http.server import HttpServer
from tests.unit.doors.line_transport import LineTransport

_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5]\d\d) [ -~]+")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([ -~]*)")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[bytes, bytes]
    body: bytes


def read_answers(data: bytes, *, heads: tuple[int, ...] = ()) -> list[Answer]:
    """The answers in ``data``, read strictly; those with these indices have no body (HEAD)."""
    answers: list[Answer] = []
    while data:
        if data.startswith(_CONTINUE):
            answers.append(Answer(100, {}, b""))
            data = data[len(_CONTINUE) :]
            continue
        head, end, data = data.partition(b"\r\n\r\n")
        assert end, head
        status_line, *lines = head.split(b"\r\n")
        status = _STATUS_LINE.fullmatch(status_line)
        assert status, status_line
        headers: dict[bytes, bytes] = {}
        for line in lines:
            field = _FIELD.fullmatch(line)
            assert field, line
            assert field[1].lower() not in headers, line
            headers[field[1].lower()] = field[2]
        size = int(headers[b"content-length"]) if len(answers) not in heads else 0
        assert len(data) >= size, (headers, data)
        answers.append(Answer(int(status[1]), headers, data[:size]))
        data = data[size:]
    return answers


class SocketTransport(LineTransport):
    """One that is its own socket, and is paused and resumed in turns."""

    def __init__(self) -> None:
        super().__init__()
        self.error = 0
        """What the socket's SO_ERROR is."""

    def get_extra_info(self, name: str) -> SocketTransport:
        assert name == "socket"
        return self

    def getsockopt(self, level: int, option: int) -> int:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR)
        return self.error

    def pause_reading(self) -> None:
        assert self.receiving, "paused twice"
        super().pause_reading()

    def resume_reading(self) -> None:
        assert not self.receiving, "resumed twice"
        super().resume_reading()


class LineServer(HttpServer):
    """A server whose loop turns when :meth:`turn` says so and whose clock stands still."""

    def __init__(self, routes: Routes | None = None, limits: HttpLimits | None = None) -> None:
        self.seen: list[Exchange] = []
        """The exchanges of ``/later``, which nobody has answered."""
        super().__init__(routes or self._routes(), limits or HttpLimits(), "test door")
        self._due: list[Callable[[], None]] = []
        self._later: list[Callable[[], None]] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._later.append(callback)

    def wait(self) -> int:
        """Let the time pass for which something waits; how much waited."""
        later, self._later = self._later, []
        for callback in later:
            callback()
        return len(later)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._due.append(callback)

    def turn(self) -> int:
        """One turn of the loop; how many callbacks ran."""
        due, self._due = self._due, []
        for callback in due:
            callback()
        return len(due)

    def _routes(self) -> Routes:
        def now(exchange: Exchange) -> None:
            exchange.respond_json(b"[" + exchange.params[0].encode() + b"]")

        def echo(exchange: Exchange) -> None:
            self.echoed.append(exchange)
            exchange.respond(200, (exchange.body,), b"application/octet-stream")

        self.echoed: list[Exchange] = []
        routes = Routes()
        routes.add("GET", "/now/{#}", now)
        routes.add("POST", "/echo", echo)
        routes.add("POST", "/binary", echo, binary=True)
        routes.add("POST", "/later", self.seen.append)
        routes.add("GET", "/later", self.seen.append)
        return routes


class Line:
    """A connected client."""

    def __init__(self, server: LineServer | None = None, *, limits: HttpLimits | None = None) -> None:
        self.server = server or LineServer(limits=limits)
        self.transport = SocketTransport()
        self.connection = HttpConnection(self.server)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def send(self, data: bytes, *, sizes: int = 0) -> None:
        """Send ``data``, ``sizes`` bytes at a time if given. Nothing is received while receiving is paused."""
        for start in range(0, len(data), sizes or len(data)):
            piece = data[start : start + (sizes or len(data))]
            while not self.transport.receiving:
                assert self.server.turn(), "the connection waits for nothing"
            self.connection.data_received(piece)
        while self.server.turn():
            pass

    def shut_down(self) -> bool:
        """Send no more; whether the connection stays open for what is owed. asyncio closes it otherwise."""
        stays = self.connection.eof_received()
        if not stays:
            self.transport.close()
        return stays

    def answers(self, *, heads: tuple[int, ...] = ()) -> list[Answer]:
        """All answers so far."""
        return read_answers(self.transport.written, heads=heads)

    def statuses(self) -> list[int]:
        return [answer.status for answer in self.answers()]

    @property
    def is_closed(self) -> bool:
        """Whether the client has been told that nothing follows."""
        return self.transport.closed or self.transport.eof_written


def get(path: str = "/now/1", *headers: str, version: str = "1.1", method: str = "GET") -> bytes:
    """The bytes of a request without a body."""
    lines = [f"{method} {path} HTTP/{version}", "Host: here", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def post(path: str = "/echo", body: bytes = b"{}", *headers: str, version: str = "1.1", method: str = "POST") -> bytes:
    """The bytes of a request with a body of declared length."""
    return get(path, *headers, f"Content-Length: {len(body)}", version=version, method=method) + body


def chunked(path: str, *chunks: bytes, trailers: tuple[str, ...] = (), headers: tuple[str, ...] = ()) -> bytes:
    """The bytes of a request whose body comes in ``chunks``."""
    parts = [b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks]
    end = "".join(["0\r\n", *(f"{trailer}\r\n" for trailer in trailers), "\r\n"]).encode()
    return get(path, "Transfer-Encoding: chunked", *headers, method="POST") + b"".join(parts) + end
