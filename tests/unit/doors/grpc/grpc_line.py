"""One client's HTTP/2 connection to a gRPC door without a network: the frames it sends, the frames it gets."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hpack import Decoder

from bident.doors.grpc import frames
from bident.doors.grpc.answer_heads import literal
from bident.doors.grpc.call import Buffer, Call, Method
from bident.doors.grpc.connection import GrpcConnection
from bident.doors.grpc.frames import END_HEADERS, END_STREAM, PREFACE, ErrorCode, Kind, Setting
from bident.doors.grpc.limits import GrpcLimits
from bident.doors.grpc.server import GrpcServer
from bident.settings.values import Api
from tests.unit.doors.line_transport import LineTransport

CALL = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/test.Echo/Unary"),
    (b":authority", b"here"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)


@dataclass(frozen=True)
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> ErrorCode:
        """Of RST_STREAM and GOAWAY."""
        at = 4 if self.kind == Kind.GOAWAY else 0
        return ErrorCode(int.from_bytes(self.payload[at : at + 4], "big"))


@dataclass
class Answer:
    """What came on one stream."""

    head: dict[bytes, bytes] = field(default_factory=dict)
    trailers: dict[bytes, bytes] = field(default_factory=dict)
    data: bytes = b""
    has_ended: bool = False
    reset: ErrorCode | None = None

    @property
    def messages(self) -> list[bytes]:
        """The messages; AssertionError for a compressed one, or one that is cut short."""
        found, rest = [], self.data
        while rest:
            assert rest[0] == 0
            size = int.from_bytes(rest[1:5], "big")
            assert len(rest) >= 5 + size
            found.append(rest[5 : 5 + size])
            rest = rest[5 + size :]
        return found

    @property
    def status(self) -> int:
        """The gRPC status, wherever it is."""
        return int({**self.head, **self.trailers}[b"grpc-status"])

    @property
    def message(self) -> bytes:
        return {**self.head, **self.trailers}.get(b"grpc-message", b"")


class Timer:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class EchoService:
    """``Unary`` and ``Stream`` answer with what they get; ``Later`` keeps its calls; ``Size`` makes so many bytes."""

    def __init__(self) -> None:
        self.later: list[Call] = []
        self.streams: list[Call] = []
        self.got: list[bytes] = []
        self.cancelled: list[Call] = []
        self.ended: list[Call] = []
        self.methods: dict[bytes, Method] = {
            b"/test.Echo/Unary": Method(serve=self._unary, api=Api.INFERENCE),
            b"/test.Echo/Stream": Method(open=self._open_echo, api=Api.INFERENCE),
            b"/test.Echo/Later": Method(serve=self._later, api=Api.INFERENCE),
            b"/test.Echo/Kept": Method(open=self._open_kept, api=Api.INFERENCE),
            b"/test.Echo/Size": Method(serve=self._size, api=Api.INFERENCE),
            b"/test.Echo/Fault": Method(serve=self._fault, api=Api.HEALTH),
        }

    def find(self, method: bytes) -> Method | None:
        return self.methods.get(method)

    def _unary(self, call: Call, message: Buffer) -> None:
        self.got.append(bytes(message))
        call.reply(message)

    def _size(self, call: Call, message: Buffer) -> None:
        call.reply(b"\xab" * int(bytes(message)))

    def _later(self, call: Call, message: Buffer) -> None:
        self.got.append(bytes(message))
        self.later.append(call)
        call.on_cancel = lambda: self.cancelled.append(call)

    def _fault(self, call: Call, message: Buffer) -> None:
        raise RuntimeError("a secret")

    def _open_echo(self, call: Call) -> None:
        call.on_message = call.send
        call.on_half_close = call.finish

    def _open_kept(self, call: Call) -> None:
        self.streams.append(call)
        call.on_message = lambda message: self.got.append(bytes(message))
        call.on_half_close = lambda: self.ended.append(call)
        call.on_cancel = lambda: self.cancelled.append(call)


class LineServer(GrpcServer):
    """A server whose loop turns when :meth:`turn` says so and whose clock stands still."""

    service: EchoService

    def __init__(self, limits: GrpcLimits | None = None, **options: Any) -> None:
        super().__init__(EchoService(), limits or GrpcLimits(), "test door", **options)
        self._due: list[Callable[[], None]] = []
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()
        self.time = 0.0

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._due.append(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Any:
        timer = Timer(self.time + seconds, callback)
        heapq.heappush(self._timers, (timer.at, next(self._count), timer))
        return timer

    def turn(self) -> int:
        """One turn of the loop; how many callbacks ran."""
        due, self._due = self._due, []
        for callback in due:
            callback()
        return len(due)

    def settle(self) -> None:
        """Turn until nothing is left to do."""
        while self.turn():
            pass

    def wait(self, seconds: float) -> None:
        """Let time pass: timers run, and the sweep once a second."""
        end = self.time + seconds
        while self.time < end:
            self.time = min(end, self.time + 1)
            self.now = self.time
            while self._timers and self._timers[0][0] <= self.time:
                callback = heapq.heappop(self._timers)[2].callback
                if callback is not None:
                    callback()
            for connection in list(self._connections):
                connection.check_progress(self.now)
            self.settle()


class Line:
    """A connected client; ``hello`` False: it has not said yet that it speaks HTTP/2."""

    def __init__(
        self, server: LineServer | None = None, *, limits: GrpcLimits | None = None, hello: bool = True
    ) -> None:
        self.server = server or LineServer(limits)
        self.service = self.server.service
        self.transport = LineTransport()
        self.connection = GrpcConnection(self.server)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        self._decoder = Decoder(max_header_list_size=1 << 20)
        self._read = 0
        self._next = 1
        self.frames: list[Frame] = []
        self.answers: dict[int, Answer] = {}
        if hello:
            self.send(PREFACE + settings())

    def send(self, *data: bytes, sizes: int = 0) -> None:
        """Send ``data``, ``sizes`` bytes at a time if given, and let the server do all it can."""
        whole = b"".join(data)
        step = sizes or max(1, len(whole))
        for start in range(0, len(whole), step):
            while not self.transport.receiving:
                assert self.server.turn(), "the connection waits for nothing"
            if self.transport.closed:
                break
            self.connection.data_received(whole[start : start + step])
        self.server.settle()
        self._take()

    def begin(self, path: str = "/test.Echo/Unary", *extra: tuple[bytes, bytes], flags: int = 0) -> int:
        """Send the headers of a call; its stream."""
        number = self._next
        self._next += 2
        self.send(headers(number, *with_path(path), *extra, flags=flags))
        return number

    def ask(self, message: bytes = b"hello", path: str = "/test.Echo/Unary", *extra: tuple[bytes, bytes]) -> Answer:
        """Make a whole unary call; what came of it so far."""
        number = self._next
        self._next += 2
        self.send(headers(number, *with_path(path), *extra), data(number, prefixed(message), END_STREAM))
        return self.answer(number)

    def answer(self, number: int) -> Answer:
        self.server.settle()
        self._take()
        return self.answers.get(number, Answer())

    def goaway(self) -> ErrorCode | None:
        """The code of the last GOAWAY, if there was one."""
        self._take()
        found = [frame.code for frame in self.frames if frame.kind == Kind.GOAWAY]
        return found[-1] if found else None

    def of_kind(self, kind: Kind) -> list[Frame]:
        self.server.settle()
        self._take()
        return [frame for frame in self.frames if frame.kind == kind]

    @property
    def is_ended(self) -> bool:
        """Whether the client has been told that nothing follows."""
        return self.transport.closed or self.transport.eof_written

    def lose(self) -> None:
        """The connection is gone."""
        self.transport.closed = True
        self.connection.connection_lost(None)

    def _take(self) -> None:
        for frame in read_frames(self.transport.written[self._read :]):
            self._read += 9 + len(frame.payload)
            self.frames.append(frame)
            answer = self.answers.setdefault(frame.stream, Answer())
            assert not (answer.has_ended and frame.kind in (Kind.HEADERS, Kind.DATA)), "a frame after the end"
            if frame.kind == Kind.HEADERS:
                assert frame.flags & END_HEADERS
                fields = {bytes(name): bytes(value) for name, value in self._decoder.decode(frame.payload, raw=True)}
                if answer.head:
                    assert frame.flags & END_STREAM, "trailers that do not end the stream"
                    answer.trailers = fields
                else:
                    answer.head = fields
            elif frame.kind == Kind.DATA:
                assert answer.head, "content before headers"
                answer.data += frame.payload
            elif frame.kind == Kind.RST_STREAM:
                answer.reset = frame.code
            if frame.kind in (Kind.HEADERS, Kind.DATA) and frame.flags & END_STREAM:
                answer.has_ended = True


def read_frames(data: bytes) -> Iterator[Frame]:
    """The whole frames in ``data``."""
    while len(data) >= 9:
        size = int.from_bytes(data[:3], "big")
        if len(data) < 9 + size:
            return
        yield Frame(data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size])
        data = data[9 + size :]


def with_path(path: str) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name, path.encode() if name == b":path" else value) for name, value in CALL)


def block(*fields: tuple[bytes, bytes]) -> bytes:
    """A header block that needs no table."""
    return b"".join(literal(name, value) for name, value in fields)


def headers(number: int, *fields: tuple[bytes, bytes], flags: int = 0) -> bytes:
    return frames.frame(Kind.HEADERS, END_HEADERS | flags, number, block(*(fields or CALL)))


def prefixed(message: bytes, *, packed: int = 0) -> bytes:
    return bytes((packed,)) + len(message).to_bytes(4, "big") + message


def data(number: int, content: bytes, flags: int = 0) -> bytes:
    """DATA frames with ``content``; the last has ``flags``."""
    parts = [content[at : at + 16384] for at in range(0, len(content), 16384)] or [b""]
    return b"".join(
        frames.frame(Kind.DATA, flags if index == len(parts) - 1 else 0, number, part)
        for index, part in enumerate(parts)
    )


def settings(**values: int) -> bytes:
    return frames.settings({Setting[name.upper()]: value for name, value in values.items()})
