"""An HTTP/2 connection that carries gRPC calls (RFC 9113, gRPC over HTTP/2): the receiving half.

``asyncio.Protocol``: no task, future or coroutine per call. Whatever a client sends, it gets a valid answer,
or is told in GOAWAY which rule it broke and the connection ends; and it costs bounded memory and time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from struct import Struct
from time import monotonic_ns
from typing import TYPE_CHECKING

from bident.doors.grpc import frames, peer_frames
from bident.doors.grpc.calls import Calls
from bident.doors.grpc.flow import PREFIX, Outflow
from bident.doors.grpc.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEAD_SIZE,
    PADDED,
    PREFACE,
    PRIORITY,
    SMALLEST_MAX_FRAME,
    STREAM_BITS,
    BrokenRulesError,
    ErrorCode,
    Kind,
)
from bident.doors.grpc.inbox import Inbox
from bident.doors.grpc.life import Life
from bident.doors.grpc.peer_frames import ControlFrame, UnfinishedBlock
from bident.doors.grpc.stream import Stream

logger = logging.getLogger("bident.grpc")

if TYPE_CHECKING:
    from bident.doors.grpc.server import GrpcServer

_LARGEST_WORD = SMALLEST_MAX_FRAME << 8 | 0xFF
_TURN_FRAMES = 512
"""How many frames of one client are looked at before other connections get their turn."""
_GIVEN_BACK = frames.OUR_WINDOW // 2
_MOST_UNREAD = 1 << 20
_PREFIX = Struct(">BI").unpack_from
_NOT_HTTP_1_BODY = b"this port speaks gRPC over HTTP/2; HTTP/1 requests go to the HTTP port (--http-port)\n"
_NOT_HTTP_1 = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
    % (len(_NOT_HTTP_1_BODY), _NOT_HTTP_1_BODY)
)

TakeFrame = Callable[["GrpcConnection", int, int, bytes, int, int], None]
"""What takes a frame: flags, stream, and where in what data its payload is."""


class GrpcConnection(asyncio.Protocol):
    """One client: what it sends, and the calls it has begun."""

    __slots__ = (
        "_backlog",
        "_block",
        "_is_paused",
        "_on_frame",
        "_read_ns",
        "_rest",
        "_taken",
        "_transport",
        "calls",
        "heard_at",
        "life",
        "outflow",
        "server",
    )

    calls: Calls
    life: Life
    outflow: Outflow
    _transport: asyncio.Transport

    def __init__(self, server: GrpcServer) -> None:
        self.server = server
        self.heard_at = server.now
        self._rest = b""
        """The beginning of a frame, or of the connection's preface."""
        self._backlog: list[bytes] = []
        """What waits for the connection's next turn."""
        self._is_paused = False
        """Nothing is received for now."""
        self._on_frame: tuple[TakeFrame, ...] = ()
        """What takes a frame of each kind; nothing before the preface."""
        self._block: UnfinishedBlock | None = None
        self._read_ns = 0
        self._taken = 0
        """How much of the connection's window the client has used since it heard of it last."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.outflow = Outflow(self.server, self._transport)
        self.life = Life(self, self._transport, self.server.now)
        self.calls = Calls(self.server, self.outflow, self.life)
        self.server.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.disconnected(self)
        self.life.is_over = True
        self._backlog.clear()
        self.calls.abandon()

    def eof_received(self) -> bool:
        """A client that sends nothing more has gone: none of HTTP/2 does without the windows it would have to open."""
        return False

    def pause_writing(self) -> None:
        self.outflow.pause()

    def resume_writing(self) -> None:
        self.outflow.resume()
        self._pace()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self.server.now
        if self._backlog:
            self._backlog.append(data)  # it was on its way when reading was paused
        else:
            self._take(data)
            if self.outflow.is_paused:
                self._pace()

    # Frames

    def _take(self, data: bytes) -> None:
        """Take what has been received; whatever is wrong with it ends the connection and nothing else."""
        if self.life.is_over:
            return
        self._read_ns = monotonic_ns()
        self.calls.turns.begin()
        at = 0
        try:
            if self._rest or not self._on_frame:
                data, at = self._take_rest(data)
            if at < len(data):
                self._take_frames(data, at)
        except BrokenRulesError as fault:
            self.life.fail(fault)
        except Exception:
            logger.exception("%s: reading from a client failed", self.server.name)
            self.life.fail(BrokenRulesError(ErrorCode.INTERNAL_ERROR, "internal error in the server"))

    def _take_rest(self, data: bytes) -> tuple[bytes, int]:
        """Take the preface, or the frame of which the beginning has come; what is left, and where it begins."""
        rest, self._rest = self._rest, b""
        if not self._on_frame:
            data = rest + data
            return data, self._take_preface(data)
        if len(rest) < HEAD_SIZE:
            return rest + data, 0
        missing = HEAD_SIZE + (HEAD.unpack_from(rest)[0] >> 8) - len(rest)
        self._take_frames(rest + data[:missing], 0)
        return data, missing

    def _take_preface(self, data: bytes) -> int:
        """See that the client speaks HTTP/2; where its frames begin."""
        if data.startswith(PREFACE):
            self._on_frame = _FIRST
            self.outflow.write(self.server.hello)
            if self.server.is_draining:
                self.life.drain(self.server.farewell)
        elif PREFACE.startswith(data):
            self._rest = data
        elif b"HTTP/1" in data:
            self._transport.write(_NOT_HTTP_1)
            self.life.is_over = True
            self._transport.close()
        else:
            raise BrokenRulesError(ErrorCode.PROTOCOL_ERROR, "this is not the preface of HTTP/2")
        return len(PREFACE) if self._on_frame else len(data)

    def _take_frames(self, data: bytes, at: int) -> None:
        end = len(data)
        left = _TURN_FRAMES
        turns = self.calls.turns
        while end - at >= HEAD_SIZE:
            word, flags, number = HEAD.unpack_from(data, at)
            if word > _LARGEST_WORD:
                raise BrokenRulesError(ErrorCode.FRAME_SIZE_ERROR, "a frame is larger than MAX_FRAME_SIZE")
            stop = at + HEAD_SIZE + (word >> 8)
            if stop > end:
                break
            self._on_frame[word & 0xFF](self, flags, number & STREAM_BITS, data, at + HEAD_SIZE, stop)
            at = stop
            left -= 1
            if (not left or turns.left < 0) and at < end:
                self._wait_for_turn(data[at:])
                return
        self._rest = data[at:]

    def _wait_for_turn(self, data: bytes) -> None:
        """Other connections come first."""
        self._backlog.append(data)
        self._pace()
        self.server.call_soon(self._work_off_backlog)

    def _work_off_backlog(self) -> None:
        if not self._backlog:
            return
        data = b"".join(self._backlog)
        self._backlog.clear()
        self._take(data)
        self._pace()

    def _pace(self) -> None:
        """Receive only while what has come is looked at, and while the client reads what we write.

        Windows do not bound errors, resets and acknowledgements; what is written needs no further frame
        of the client's to go out, so not receiving any cannot hold it up.
        """
        outflow = self.outflow
        is_unread = outflow.is_paused and self._transport.get_write_buffer_size() > _MOST_UNREAD
        should_pause = bool(self._backlog) or is_unread
        if should_pause == self._is_paused or self._transport.is_closing():
            return
        self._is_paused = should_pause
        if should_pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def take_first_settings(self, flags: int, number: int, data: bytes, start: int, stop: int) -> None:
        """The client introduces itself, as it has to before anything else."""
        if flags & ACK:
            raise BrokenRulesError(ErrorCode.PROTOCOL_ERROR, "the first SETTINGS cannot be an acknowledgement")
        self._on_frame = _USUAL
        peer_frames.take_settings(self, ControlFrame(flags, number, data[start:stop]))

    def take_data(self, flags: int, number: int, data: bytes, start: int, stop: int) -> None:
        """Content of a call. One whole message in one frame, which is all of a call, is the hot path."""
        size = stop - start
        self._taken += size
        if self._taken > _GIVEN_BACK:
            self.calls.give_window(0, self._taken)
            self._taken = 0
        stream = self.calls.streams.get(number)
        if stream is None or stream.is_half_closed:
            self.calls.take_stray(number, size, is_last=bool(flags & END_STREAM))
        elif (
            flags == END_STREAM
            and stream.inbox is None
            and size >= PREFIX
            and _PREFIX(data, start) == (0, size - PREFIX)
            and stream.head.length in (-1, size)
        ):
            stream.is_half_closed = True
            stream.received_ns = self._read_ns
            self.calls.dispatch(stream, data[start + PREFIX : stop])
        elif not stream.is_over:
            self._take_part(stream, flags, data, start, stop)

    def _take_part(self, stream: Stream, flags: int, data: bytes, start: int, stop: int) -> None:
        """Part of a message, several of them, or one of a streaming call."""
        size = stop - start
        if flags & PADDED:
            start, stop = frames.unpadded(data, start, stop)
        is_last = bool(flags & END_STREAM)
        if start == stop and not is_last:
            self.life.spend()
        inbox = stream.inbox
        if inbox is None:
            inbox = stream.inbox = Inbox(stream, self.calls)
        inbox.received += stop - start
        if is_last and stream.head.length not in (-1, inbox.received):
            self.calls.fail_stream(stream.number, ErrorCode.PROTOCOL_ERROR)
            return
        stream.is_half_closed = is_last
        self.calls.guard(stream, lambda: inbox.take(data, start, stop))
        if not stream.is_over:
            inbox.account(size)
            if is_last:
                self.calls.guard(stream, inbox.end)

    def take_headers(self, flags: int, number: int, data: bytes, start: int, stop: int) -> None:
        """A call begins, or, on a stream that is open, the client's last word."""
        if flags & PADDED:
            start, stop = frames.unpadded(data, start, stop)
        if flags & PRIORITY:
            start = frames.after_priority(number, data, start, stop)
        block = data[start:stop]
        if flags & END_HEADERS:
            self.calls.take_block(number, block, is_last=bool(flags & END_STREAM))
        else:
            self._block = UnfinishedBlock(number, flags, block, self.server)
            self._on_frame = _IN_BLOCK

    def take_continuation(self, flags: int, number: int, data: bytes, start: int, stop: int) -> None:
        """More of a header block."""
        unfinished = self._block
        assert unfinished is not None
        if unfinished.is_completed_by(flags, number, data[start:stop]):
            self._block = None
            self._on_frame = _USUAL
            self.calls.take_block(number, unfinished.block, is_last=bool(unfinished.flags & END_STREAM))

    # For the server

    @property
    def has_begun(self) -> bool:
        """Whether the client has said that it speaks HTTP/2; it is not spoken to before."""
        return bool(self._on_frame)

    @property
    def owes_answer(self) -> bool:
        """Whether the client waits for an answer, or for the rest of one; an open stream alone does not count."""
        return self._transport.get_write_buffer_size() > 0 or self.calls.owe_answer

    @property
    def unfinished_since(self) -> float | None:
        """When the client last added to a frame, or began the header block, that is not whole; None if all are."""
        if self._block is not None:
            return self._block.began
        return self.heard_at if self._rest else None

    def ignore_frames(self) -> None:
        """The connection has ended; what the client had sent by then is not looked at."""
        self._on_frame = _OVER

    def check_progress(self, now: float) -> None:
        """Called by the server's sweep: end what has stalled for too long."""
        self.life.check(now)
        if not self.life.is_over:
            self.calls.check(now)

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()


def _control(take: Callable[[GrpcConnection, ControlFrame], None]) -> TakeFrame:
    """What takes frames that are rare enough to be cut out."""

    def take_frame(connection: GrpcConnection, flags: int, number: int, data: bytes, start: int, stop: int) -> None:
        take(connection, ControlFrame(flags, number, data[start:stop]))

    return take_frame


def _only(kind: Kind, take: TakeFrame, otherwise: str) -> tuple[TakeFrame, ...]:
    """For moments in which only one kind may come."""
    refuse = peer_frames.refuse(otherwise)
    return tuple(take if other == kind else refuse for other in range(256))


_USUAL: tuple[TakeFrame, ...] = (
    GrpcConnection.take_data,
    GrpcConnection.take_headers,
    _control(peer_frames.take_priority),
    _control(peer_frames.take_rst_stream),
    _control(peer_frames.take_settings),
    peer_frames.refuse("a client cannot push"),
    _control(peer_frames.take_ping),
    _control(peer_frames.take_goaway),
    _control(peer_frames.take_window_update),
    peer_frames.refuse("CONTINUATION without HEADERS before it"),
    *(_control(peer_frames.take_unknown),) * (256 - len(Kind)),
)
_OVER: tuple[TakeFrame, ...] = (lambda *_: None,) * 256
_FIRST = _only(Kind.SETTINGS, GrpcConnection.take_first_settings, "the first frame has to be SETTINGS")
_IN_BLOCK = _only(Kind.CONTINUATION, GrpcConnection.take_continuation, "another frame in the middle of a header block")
