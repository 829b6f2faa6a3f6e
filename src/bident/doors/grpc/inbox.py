"""A call's messages on their way in: put together from frames, decompressed, held back while nobody takes them."""

from __future__ import annotations

from collections import deque
from functools import partial
from struct import Struct
from time import monotonic_ns
from typing import TYPE_CHECKING

from bident.doors.aside import aside
from bident.doors.grpc.call import Buffer, Status
from bident.doors.grpc.flow import PREFIX
from bident.doors.grpc.frames import ErrorCode
from bident.doors.grpc.packing import UNPACK_HERE, Coding, RefusedMessageError, too_large, unpack

if TYPE_CHECKING:
    from bident.doors.grpc.calls import Calls
    from bident.doors.grpc.stream import Stream

WINDOW = 4 * 1024 * 1024
"""How much a client may send on a stream before it hears that some of it has been taken."""
_GIVEN_BACK = WINDOW // 4
_UNUSUAL = 8 << 20
"""What larger messages took is given back to the system."""
_PREFIX = Struct(">BI").unpack


class Inbox:
    """What has come of one call and has not been handed to the service.

    Bytes count as taken as soon as they are part of a message, so that a message may be larger than the
    window; while the service has paused the call nothing is taken, and the window bounds what is kept.
    """

    __slots__ = (
        "_calls",
        "_has_ended",
        "_is_ending",
        "_is_packed",
        "_is_paused",
        "_is_unpacking",
        "_message",
        "_missing",
        "_prefix",
        "_stream",
        "_ungiven",
        "_waiting",
        "_whole",
        "count",
        "received",
    )

    def __init__(self, stream: Stream, calls: Calls) -> None:
        self._stream = stream
        self._calls = calls
        self._prefix = b""
        self._message: bytearray | None = None
        self._missing = 0
        """How much of the message that has begun is still to come."""
        self._is_packed = False
        self._is_paused = False
        self._is_unpacking = False
        self._is_ending = False
        """Nothing more comes."""
        self._has_ended = False
        """The service knows that nothing more comes."""
        self._waiting: deque[tuple[bool, Buffer]] = deque()
        self._whole: Buffer | None = None
        """The request of a unary call, until the client has said that it is the only one."""
        self._ungiven = 0
        """How much the client's window is smaller than it was at first."""
        self.received = 0
        """How many bytes of DATA have come."""
        self.count = 0
        """How many messages have been whole."""

    def take(self, data: bytes, start: int, stop: int) -> None:
        """Take ``data[start:stop]``, the content of a DATA frame. RefusedMessageError ends the call."""
        view = memoryview(data)
        at = start
        if self._is_whole(data, start, stop):
            at = stop
            self._is_packed = False
            self._calls.server.held.size += stop - start - PREFIX
            self._complete(data[start + PREFIX : stop])
        while at < stop:
            if self._message is None:
                end = min(stop, at + PREFIX - len(self._prefix))
                self._prefix += data[at:end]
                at = end
                if len(self._prefix) == PREFIX:
                    self._begin()
            else:
                end = min(stop, at + self._missing)
                self._message += view[at:end]
                self._missing -= end - at
                self._calls.server.held.size += end - at
                at = end
            if self._message is not None and not self._missing:
                self._complete(self._message)
        if self._calls.server.held.is_full:
            raise RefusedMessageError(
                Status.RESOURCE_EXHAUSTED, "the server holds too many unfinished messages; try again in a moment"
            )

    def account(self, size: int) -> None:
        """Count ``size`` bytes of DATA against the window, and open it again if they have been taken."""
        self._ungiven += size
        if self._ungiven > WINDOW:
            self._calls.fail_stream(self._stream.number, ErrorCode.FLOW_CONTROL_ERROR)
        elif not self._is_paused and not self._waiting:
            self._give_back()

    def end(self) -> None:
        """The client has sent its last frame. RefusedMessageError ends the call."""
        if self.has_begun:
            raise RefusedMessageError(Status.INTERNAL, "the request ends in the middle of a message")
        self._is_ending = True
        if not self._waiting and not self._is_unpacking:
            self._finish()

    def pause(self) -> None:
        """Hand over no more messages for now."""
        self._is_paused = True

    def resume(self) -> None:
        """Hand over what has come meanwhile, and what comes."""
        self._is_paused = False
        self._work_off()

    def close(self) -> None:
        """The call is over: let go of everything."""
        kept = sum(len(message) for _, message in self._waiting)
        for message in (self._message, self._whole):
            kept += len(message) if message is not None else 0
        self._calls.server.held.size -= kept
        self._waiting.clear()
        self._message = self._whole = None
        self._is_paused = False

    @property
    def has_begun(self) -> bool:
        """Whether part of a message has come, of which the rest is missing."""
        return bool(self._prefix) or self._message is not None

    # Inside

    def _is_whole(self, data: bytes, start: int, stop: int) -> bool:
        """Whether ``data[start:stop]`` is one message of a stream, not compressed: what most frames are."""
        return (
            self._message is None
            and not self._prefix
            and stop - start >= PREFIX
            and self._stream.is_streaming
            and _PREFIX(data[start : start + PREFIX]) == (0, stop - start - PREFIX)
        )

    def _begin(self) -> None:
        flag, self._missing = _PREFIX(self._prefix)
        self._prefix = b""
        limit = self._calls.server.limits.message_bytes
        if flag > 1:
            raise RefusedMessageError(
                Status.INTERNAL, f"a message begins with a byte that is 0 or 1 (compressed), not {flag}"
            )
        if flag and self._stream.head.unpack is None:
            raise RefusedMessageError(Status.INTERNAL, "a message is compressed, but grpc-encoding does not say how")
        if self._missing > limit:
            raise too_large(str(self._missing), limit)
        if self.count and not self._stream.is_streaming:
            raise RefusedMessageError(Status.UNIMPLEMENTED, "this method takes exactly one message")
        self._is_packed = bool(flag)
        self._message = bytearray()

    def _complete(self, message: Buffer) -> None:
        self._message = None
        self.count += 1
        if self.count == 1:
            self._stream.received_ns = monotonic_ns()
        self._waiting.append((self._is_packed, message))
        self._work_off()

    def _work_off(self) -> None:
        """Hand over what waits, as far as that may be."""
        waiting = self._waiting
        stream = self._stream
        while waiting and not self._is_paused and not self._is_unpacking:
            is_packed, message = waiting.popleft()
            coding = stream.head.unpack
            if is_packed and coding is not None:
                if len(message) > UNPACK_HERE:
                    self._is_unpacking = True
                    self._calls.server.run_call(self._unpack_aside(coding, message), stream)
                    return
                message = self._unpack_here(coding, message)
            self._hand_over(message)
        if not waiting and not self._is_paused and not stream.is_over:
            self._give_back()
            if self._is_ending:
                self._finish()

    def _unpack_here(self, coding: Coding, message: Buffer) -> bytes:
        held = self._calls.server.held
        held.size -= len(message)
        unpacked = unpack(coding, message, self._calls.server.limits.message_bytes)
        held.size += len(unpacked)
        return unpacked

    async def _unpack_aside(self, coding: Coding, message: Buffer) -> None:
        stream = self._stream
        held = self._calls.server.held
        limit = min(self._calls.server.limits.message_bytes, max(0, held.limit - held.size))
        try:
            unpacked = await aside(partial(unpack, coding, message, limit))
        except RefusedMessageError as refusal:
            if not stream.is_over:
                stream.break_off(refusal.status, refusal.message)
            return
        finally:
            held.size -= len(message)
        self._is_unpacking = False
        if not stream.is_over:
            held.size += len(unpacked)
            self._calls.guard(stream, lambda: self._resume_with(unpacked))

    def _resume_with(self, message: bytes) -> None:
        self._hand_over(message)
        self._work_off()

    def _hand_over(self, message: Buffer) -> None:
        if self._stream.is_streaming:
            self._calls.server.held.size -= len(message)
            self._stream.on_message(message)
        else:
            self._whole = message
        if len(message) > _UNUSUAL:
            self._calls.server.trim_after(self._stream)

    def _finish(self) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        stream = self._stream
        if stream.is_streaming:
            stream.on_half_close()
        elif self._whole is not None:
            message, self._whole = self._whole, None
            self._calls.server.held.size -= len(message)
            self._calls.dispatch(stream, message)
        elif not self._is_unpacking:
            raise RefusedMessageError(Status.UNIMPLEMENTED, "this method takes exactly one message; none came")

    def _give_back(self) -> None:
        if self._ungiven >= _GIVEN_BACK and not self._stream.is_half_closed:
            self._calls.give_window(self._stream.number, self._ungiven)
            self._ungiven = 0
