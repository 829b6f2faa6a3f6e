"""A call's messages on their way in: put together from frames, decompressed, held back while nobody takes them."""

from __future__ import annotations

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
_PIECE = 64 * 1024
"""How much of what was held up is looked at in one go."""
_UNUSUAL = 8 << 20
"""What larger messages took is given back to the system."""
_MUCH = 64 * 1024
"""So is what had come for calls that end with more than this held up: there may be thousands of those."""
_PREFIX = Struct(">BI").unpack_from


class Inbox:
    """What has come of one call and has not been handed to the service.

    Bytes count as taken as soon as they are part of a message, so that a message may be larger than the
    window. While no message can be handed over, what comes stays the bytes it is, whatever is in them:
    the window bounds those, and nothing would bound what a million empty messages cost.
    """

    __slots__ = (
        "_calls",
        "_has_ended",
        "_is_ending",
        "_is_packed",
        "_is_paused",
        "_is_unpacking",
        "_is_waiting",
        "_message",
        "_missing",
        "_prefix",
        "_stream",
        "_ungiven",
        "_unread",
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
        """The service takes nothing for now."""
        self._is_unpacking = False
        self._is_waiting = False
        """It goes on in a later turn, or when the client has taken some of its answers."""
        self._is_ending = False
        """Nothing more comes."""
        self._has_ended = False
        """The service knows that nothing more comes."""
        self._unread = bytearray()
        """What has come and has not been looked at."""
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
        held = self._calls.server.held
        at = start if self._unread else self._split(data, start, stop)
        if at < stop and not self._stream.is_over:
            self._unread += memoryview(data)[at:stop]
            held.size += stop - at
        if held.is_full:
            raise RefusedMessageError(
                Status.RESOURCE_EXHAUSTED, "the server holds too many unfinished messages; try again in a moment"
            )

    def account(self, size: int) -> None:
        """Count ``size`` bytes of DATA against the window, and open it again if they have been taken."""
        self._ungiven += size
        if self._ungiven > WINDOW:
            self._calls.fail_stream(self._stream.number, ErrorCode.FLOW_CONTROL_ERROR)
        else:
            self._give_back()

    def end(self) -> None:
        """The client has sent its last frame. RefusedMessageError ends the call."""
        self._is_ending = True
        self._finish()

    def pause(self) -> None:
        """Hand over no more messages for now."""
        self._is_paused = True

    def resume(self) -> None:
        """Hand over what has come meanwhile, and what comes; from the next turn of the loop on."""
        self._is_paused = False
        if not self._is_waiting:
            self._is_waiting = True
            self._calls.turns.wait(self)

    def take_turn(self) -> None:
        """Go on with what was held up, as far as that may be."""
        self._is_waiting = False
        if not self._stream.is_over:
            self._calls.guard(self._stream, self._go_on)

    def close(self) -> None:
        """The call is over: let go of everything."""
        kept = len(self._unread)
        if kept > _MUCH:
            self._calls.server.trim_soon()
        for message in (self._message, self._whole):
            kept += len(message) if message is not None else 0
        self._calls.server.held.size -= kept
        self._unread = bytearray()
        self._message = self._whole = None
        if self._is_waiting:
            self._calls.forget(self)

    @property
    def owes_rest(self) -> bool:
        """Whether the client has begun a message and not sent the rest; what it could not send, it does not owe."""
        return self._has_begun and not self._unread

    # Inside

    @property
    def _has_begun(self) -> bool:
        return bool(self._prefix) or self._message is not None

    def _split(self, data: bytes, at: int, stop: int) -> int:
        """Hand over the messages in ``data[at:stop]``, as far as that may be; where the rest begins."""
        stream = self._stream
        while at < stop and self._may_go_on():
            end = self._end_of_whole(data, at, stop) if stream.is_streaming else 0
            if end:
                self._is_packed = False
                self._complete(data[at + PREFIX : end])
            elif self._message is None:
                end = min(stop, at + PREFIX - len(self._prefix))
                self._prefix += data[at:end]
                if len(self._prefix) == PREFIX:
                    self._begin()
            else:
                end = min(stop, at + self._missing)
                self._add(memoryview(data)[at:end])
            at = end
        return at

    def _may_go_on(self) -> bool:
        """Whether a message may be handed over now; if not, this is called again as soon as it may."""
        if self._is_paused or self._is_unpacking or self._is_waiting or self._stream.is_over:
            return False
        calls = self._calls
        if not self._stream.is_streaming:
            return True
        if calls.owes_too_much:
            self._is_waiting = True
            calls.await_relief(self)
        elif calls.turns.left <= 0:
            self._is_waiting = True
            calls.turns.wait(self)
        return not self._is_waiting

    def _end_of_whole(self, data: bytes, at: int, stop: int) -> int:
        """Where the message ends that begins at ``at``, if it is whole and not compressed, as most are; else 0."""
        if self._message is not None or self._prefix or stop - at < PREFIX:
            return 0
        flag, size = _PREFIX(data, at)
        end: int = at + PREFIX + size
        is_whole = not flag and end <= stop and size <= self._calls.server.limits.message_bytes
        return end if is_whole else 0

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
        if self._missing:
            self._message = bytearray()
        else:
            self._complete(b"")

    def _add(self, content: memoryview) -> None:
        message = self._message
        assert message is not None
        held = self._calls.server.held
        message += content
        held.size += len(content)
        self._missing -= len(content)
        if not self._missing:
            self._message = None
            held.size -= len(message)
            self._complete(message)

    def _complete(self, message: Buffer) -> None:
        self.count += 1
        if self.count == 1:
            self._stream.received_ns = monotonic_ns()
        server = self._calls.server
        coding = self._stream.head.unpack if self._is_packed else None
        if coding is None:
            self._hand_over(message)
        elif len(message) <= UNPACK_HERE:
            self._hand_over(unpack(coding, message, server.limits.message_bytes))
        else:
            self._is_unpacking = True
            server.held.size += len(message)
            server.run_call(self._unpack_aside(coding, message), self._stream)

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
            self._calls.guard(stream, lambda: self._resume_with(unpacked))

    def _resume_with(self, message: bytes) -> None:
        self._hand_over(message)
        self._go_on()

    def _hand_over(self, message: Buffer) -> None:
        if self._stream.is_streaming:
            self._calls.turns.left -= 1
            self._stream.on_message(message)
        else:
            self._whole = message
            self._calls.server.held.size += len(message)
        if len(message) > _UNUSUAL:
            self._calls.server.trim_after(self._stream)

    def _go_on(self) -> None:
        """Look at what was held up. RefusedMessageError ends the call."""
        unread = self._unread
        while unread and self._may_go_on():
            piece = bytes(unread[:_PIECE])
            taken = self._split(piece, 0, len(piece))
            if self._unread is not unread:
                return  # the call was closed meanwhile
            del unread[:taken]
            self._calls.server.held.size -= taken
        if not self._stream.is_over and not self._is_paused:
            self._give_back()
            self._finish()

    def _finish(self) -> None:
        """If nothing more comes and all has been handed over, say so."""
        if not self._is_ending or self._has_ended or self._unread or self._is_unpacking or self._stream.is_over:
            return
        if self._has_begun:
            raise RefusedMessageError(Status.INTERNAL, "the request ends in the middle of a message")
        self._has_ended = True
        stream = self._stream
        if stream.is_streaming:
            stream.on_half_close()
        elif self._whole is not None:
            message, self._whole = self._whole, None
            self._calls.server.held.size -= len(message)
            self._calls.dispatch(stream, message)
        else:
            raise RefusedMessageError(Status.UNIMPLEMENTED, "this method takes exactly one message; none came")

    def _give_back(self) -> None:
        """Let the client send as much again as has been taken, unless something is held up."""
        is_taken = not self._unread and not self._is_paused
        if is_taken and self._ungiven >= _GIVEN_BACK and not self._stream.is_half_closed:
            self._calls.give_window(self._stream.number, self._ungiven)
            self._ungiven = 0
