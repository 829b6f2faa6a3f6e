"""The sending half of a connection: what is written together, and how much the client lets us send.

Small answers go out at once, together with all others of the same turn of the loop. What is larger than
the client's windows, or comes faster than it reads, waits in its stream's queue and is sent a frame at a
time, the streams in turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from bident.doors.grpc import answer_heads
from bident.doors.grpc.call import Buffer
from bident.doors.grpc.frames import (
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW,
    HEAD,
    LARGEST_WINDOW,
    SMALLEST_MAX_FRAME,
    BrokenRulesError,
    ErrorCode,
    Kind,
    frame,
)
from bident.doors.grpc.limits import Held

if TYPE_CHECKING:
    from bident.doors.grpc.server import GrpcServer
    from bident.doors.grpc.stream import Stream

_LARGEST_FRAME = 256 * 1024
"""We send no larger ones, whatever the client takes: other streams want their turn."""
_TURN_BYTES = 256 * 1024
"""About how much one connection sends in a turn of the loop."""
_JOINED = 64 * 1024
"""Up to so many bytes are copied into one piece, which costs less than sending many."""
PREFIX = 5
"""Before each message: whether it is compressed, and its length."""

# HEADERS, and the head of DATA with the message's prefix, in one go; after the message, the trailers.
_OK = answer_heads.OK_HEAD
_END = answer_heads.OK_TRAILERS
_BEGIN_REPLY = Struct(f">IBI{len(_OK)}sIBIBI").pack
_END_REPLY = Struct(f">IBI{len(_END)}s").pack
_BEGIN_MESSAGE = Struct(">IBIBI").pack
_OK_WORD = len(_OK) << 8 | Kind.HEADERS
_END_WORD = len(_END) << 8 | Kind.HEADERS
_END_FLAGS = END_HEADERS | END_STREAM
_DATA_WORD = int(Kind.DATA)


class Outflow:
    """What one connection sends."""

    __slots__ = (
        "_forget_table",
        "_held",
        "_is_due",
        "_pieces",
        "_ready",
        "_server",
        "_size",
        "_transport",
        "frames",
        "initial_window",
        "is_paused",
        "max_frame",
        "on_relief",
        "quick",
        "unsent",
        "window",
    )

    def __init__(self, server: GrpcServer, transport: asyncio.Transport) -> None:
        self._server = server
        self._held: Held = server.held
        self._transport = transport
        self._pieces: list[Buffer] = []
        self._size = 0
        """How many bytes of messages are among the pieces."""
        self._is_due = False
        self.is_paused = False
        self._forget_table = False
        self._ready: deque[Stream] = deque()
        """Streams that have something to send and may, in the order of their turns."""
        self.window = FIRST_WINDOW
        """How many bytes of DATA the client takes on all streams together."""
        self.initial_window = FIRST_WINDOW
        """What each stream's window was at first; its ``credit`` is what it differs by."""
        self.max_frame = SMALLEST_MAX_FRAME
        self.quick = SMALLEST_MAX_FRAME
        """The largest message (with its prefix) that may go out at once on a stream which has sent nothing yet."""
        self.unsent = 0
        """How many bytes wait in the streams' queues."""
        self.frames = 0
        """How many frames of answers have been written: clients may ask and tell about as much in between."""
        self.on_relief: Callable[[], None] | None = None
        """Called, once, when the client has taken so much that its next requests may be served."""

    # Writing

    def write(self, data: bytes) -> None:
        """Send whole frames."""
        self._pieces.append(data)
        self._want_flush()

    def write_reply(self, number: int, message: Buffer, size: int) -> None:
        """Send the whole answer of a unary call; the message with its prefix, ``size`` bytes, fits all windows."""
        self.window -= size
        self._size += size
        self.frames += 1
        self._pieces += (
            _BEGIN_REPLY(_OK_WORD, END_HEADERS, number, _OK, size << 8, 0, number, 0, size - PREFIX),
            message,
            _END_REPLY(_END_WORD, _END_FLAGS, number, _END),
        )
        if not self._is_due:
            self._is_due = True
            self._server.flush_soon(self)

    def write_message(self, stream: Stream, message: Buffer, size: int) -> None:
        """Send a message that fits all windows and one frame; it is ``size`` bytes with its prefix, not compressed."""
        self.window -= size
        stream.credit -= size
        self._size += size
        self.frames += 1
        self._pieces += (_BEGIN_MESSAGE(size << 8, 0, stream.number, 0, size - PREFIX), message)
        self._want_flush()

    def write_block(self, number: int, block: bytes, *, is_last: bool) -> None:
        """Send HEADERS: the head of an answer, or, as its last frame, its trailers."""
        if self._forget_table:
            self._forget_table = False
            self._set_quick()
            block = answer_heads.FORGET_TABLE + block
        self.frames += 1
        self.write(frame(Kind.HEADERS, END_HEADERS | is_last, number, block))

    def enqueue(self, stream: Stream, pieces: tuple[Buffer, ...]) -> None:
        """Have ``pieces`` sent on ``stream`` when there is room for them."""
        size = 0
        for piece in pieces:
            stream.queue.append(memoryview(piece))
            size += len(piece)
        stream.queued += size
        self.unsent += size
        self._held.size += size
        self.make_ready(stream)

    def drop(self, stream: Stream) -> None:
        """Forget what waits in the queue of ``stream``."""
        stream.queue.clear()
        self._took(stream, stream.queued)

    def drop_all(self) -> None:
        """All streams have been dropped: none has a turn any more."""
        self._ready.clear()

    def flush(self) -> None:
        """Hand over what this turn of the loop has written, and as much of the queues as may go."""
        self._is_due = False
        if self._transport.is_closing():
            self._pieces.clear()
            return
        if self._ready:
            self._fill()
        pieces, self._pieces = self._pieces, []
        size, self._size = self._size, 0
        if size > _JOINED:
            self._transport.writelines(pieces)
        elif pieces:
            self._transport.write(b"".join(pieces))
        if self._ready and self.window > 0 and not self.is_paused:
            self._want_flush()
        if self.on_relief is not None and self.unsent <= self._server.limits.unsent_bytes:
            relieve, self.on_relief = self.on_relief, None
            relieve()

    def give_up(self) -> None:
        """Nothing more can be sent: cut the connection."""
        self._transport.abort()

    # What the client allows

    def pause(self) -> None:
        """The client does not read as fast as we write."""
        self.is_paused = True
        self._set_quick()

    def resume(self) -> None:
        """It has caught up."""
        self.is_paused = False
        self._set_quick()
        self._want_flush()

    def widen(self, increment: int) -> None:
        """The connection's window grows."""
        self.window += increment
        if self.window > LARGEST_WINDOW:
            raise BrokenRulesError(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is larger than 2^31 - 1")
        if self._ready:
            self._want_flush()

    def room(self, stream: Stream) -> int:
        """How many bytes the window of ``stream`` lets through."""
        return self.initial_window + stream.credit

    def set_initial_window(self, size: int, streams: list[Stream]) -> None:
        """The windows of all ``streams``, open and to come, change by as much as this one does."""
        self.initial_window = size
        self._set_quick()
        for stream in streams:
            if size + stream.credit > LARGEST_WINDOW:
                raise BrokenRulesError(ErrorCode.FLOW_CONTROL_ERROR, "a stream's window is larger than 2^31 - 1")
            self.make_ready(stream)

    def set_max_frame(self, size: int) -> None:
        """The client takes frames of up to ``size`` bytes."""
        self.max_frame = min(size, _LARGEST_FRAME)
        self._set_quick()

    def forget_table(self) -> None:
        """The client's dynamic table is smaller than it was: say that we do without."""
        self._forget_table = True
        self._set_quick()

    def make_ready(self, stream: Stream) -> None:
        """Give ``stream`` its turns, if it has something to send and its window is open."""
        if stream.queued and not stream.is_ready and self.room(stream) > 0:
            stream.is_ready = True
            self._ready.append(stream)
            self._want_flush()

    # Inside

    def _want_flush(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._server.flush_soon(self)

    def _set_quick(self) -> None:
        is_slow = self.is_paused or self._forget_table
        self.quick = -1 if is_slow else min(self.max_frame, self.initial_window)

    def _fill(self) -> None:
        """Write a frame of each stream in turn, as far as windows and pace allow."""
        ready = self._ready
        while ready and self._size < _TURN_BYTES and self.window > 0 and not self.is_paused:
            stream = ready.popleft()
            stream.is_ready = False
            if stream.queue:  # else it has been reset since
                self._write_part(stream)
                if stream.queue:
                    self.make_ready(stream)
                else:
                    stream.emptied()

    def _write_part(self, stream: Stream) -> None:
        """Write one frame of what ``stream`` has in its queue."""
        size = min(stream.queued, self.max_frame, self.window, self.room(stream))
        queue = stream.queue
        self._pieces.append(HEAD.pack(size << 8 | _DATA_WORD, 0, stream.number))
        left = size
        while left:
            piece = queue.popleft()
            if len(piece) > left:
                queue.appendleft(piece[left:])
                piece = piece[:left]
            self._pieces.append(piece)
            left -= len(piece)
        self.window -= size
        stream.credit -= size
        self._size += size
        self.frames += 1
        self._took(stream, size)

    def _took(self, stream: Stream, size: int) -> None:
        stream.queued -= size
        self.unsent -= size
        self._held.size -= size
