"""The calls of one connection: how they begin, reach the service, and end before their time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bident.doors.grpc import frames
from bident.doors.grpc.call import Buffer, Status
from bident.doors.grpc.flow import Outflow
from bident.doors.grpc.frames import BrokenRulesError, ErrorCode
from bident.doors.grpc.header_blocks import HeaderBlocks
from bident.doors.grpc.inbox import Inbox
from bident.doors.grpc.packing import RefusedMessageError
from bident.doors.grpc.refusals import Refusals
from bident.doors.grpc.request_head import Refusal, RequestHead
from bident.doors.grpc.stream import Stream
from bident.doors.grpc.turns import Turns

if TYPE_CHECKING:
    from bident.doors.grpc.life import Life
    from bident.doors.grpc.server import GrpcServer

_MOST_RESET = 4096
"""So many streams are remembered that we have ended before the client had."""
_BLOCK_BYTES = 128
"""So many bytes of a header block that has not come before cost about as much time as a message."""
_REFUSED = {"restricted": Status.UNAVAILABLE, "unauthenticated": Status.UNAUTHENTICATED}


class Calls:
    """The open calls of one connection, and the way to begin more."""

    __slots__ = (
        "_blocks",
        "_held_back",
        "_life",
        "_reset",
        "_stuck",
        "last_stream",
        "outflow",
        "refusals",
        "server",
        "streams",
        "turns",
    )

    def __init__(self, server: GrpcServer, outflow: Outflow, life: Life) -> None:
        limits = server.limits
        self.server = server
        self.outflow = outflow
        self._life = life
        self._blocks = HeaderBlocks(server.service, limits.head_bytes, packs=limits.compression_level > 0)
        self.streams: dict[int, Stream] = {}
        """The calls that are open, by the number of their stream."""
        self.last_stream = 0
        """The highest number of a stream that the client has begun."""
        self._reset: dict[int, bool] = {}
        """Streams that we have ended before the client had, whose frames may still be on their way; and whether it
        has been told to send no more.
        """
        self.refusals = Refusals(outflow)
        """What is not gRPC, and has not come whole."""
        self._held_back: dict[Stream, Buffer] = {}
        """Requests that wait until the client has taken more of its answers."""
        self._stuck: dict[Inbox, None] = {}
        """Streaming calls that wait for the same."""
        self.turns = Turns(server.call_soon)

    # What comes

    def take_block(self, number: int, block: bytes, *, is_last: bool) -> None:
        """Take a whole header block: a call begins, or the client says its last word on one."""
        if number <= self.last_stream or not number & 1:
            self._take_trailers(number, block, is_last=is_last)
            return
        head = self._blocks.known.get(block) or self._read(block)
        self.last_stream = number
        if isinstance(head, str):
            self.fail_stream(number, ErrorCode.PROTOCOL_ERROR)
        elif self._life.has_left or len(self.streams) + len(self.refusals) >= self.server.most_streams:
            self.fail_stream(number, ErrorCode.REFUSED_STREAM)
        elif head.refusal is not None:
            self._refuse(number, head.refusal, is_last=is_last)
        else:
            stream = Stream(self, number, head)
            self.streams[number] = stream
            if is_last or head.timeout_ns >= 0 or head.serve is None or self.server.access is not None:
                self._begin(stream, is_last=is_last)

    def dispatch(self, stream: Stream, message: Buffer) -> None:
        """Have a unary call served; whatever goes wrong, it gets an answer."""
        if self.outflow.unsent > self.server.limits.unsent_bytes:
            self._hold_back(stream, message)
            return
        serve = stream.head.serve
        try:
            answering = serve(stream, message)  # type: ignore[misc] # only streaming calls have none
        except Exception as error:  # noqa: BLE001 - nothing a call causes may cost another one its answer
            self.server.fail(stream, error)
        else:
            if answering is not None:
                self.server.run_call(answering, stream)

    def take_stray(self, number: int, size: int, *, is_last: bool) -> None:
        """DATA came on a stream that is not open, that is refused, or that the client has closed."""
        if number in self.refusals:
            if self.refusals.take(number, size) or is_last:
                self._answer_refused(number, is_last=is_last)
            return
        if number == 0 or number > self.last_stream or not number & 1:
            raise BrokenRulesError(ErrorCode.PROTOCOL_ERROR, "DATA on a stream that is not open")
        is_told = self._reset.get(number)
        if is_told is None:
            self.fail_stream(number, ErrorCode.STREAM_CLOSED)
        elif not is_told and not is_last:
            self.reset(number, ErrorCode.NO_ERROR)

    # For streams and inboxes

    def guard(self, stream: Stream, action: Callable[[], None]) -> None:
        """Do what concerns ``stream``; if it fails, the call does, and nothing else."""
        try:
            action()
        except RefusedMessageError as refusal:
            stream.break_off(refusal.status, refusal.message)
        except Exception as error:  # noqa: BLE001 - nothing a call causes may cost another one its answer
            self.server.fail(stream, error)

    def fail_stream(self, number: int, code: ErrorCode) -> None:
        """The client broke a rule on one stream: that ends, and the client pays for it."""
        self._life.spend_reset()
        self.reset(number, code)
        self.refusals.forget(number)
        stream = self.streams.get(number)
        if stream is not None:
            stream.cancel()

    def reset(self, number: int, code: ErrorCode) -> None:
        """Tell the client that a stream has ended, whatever it was about to send."""
        self.outflow.write(frames.rst_stream(number, code))
        self._remember(number, is_told=True)

    def give_window(self, number: int, size: int) -> None:
        """The client may send ``size`` bytes more on stream ``number``; 0 is the connection."""
        self.outflow.write(frames.window_update(number, size))

    @property
    def owes_too_much(self) -> bool:
        """Whether so many answers wait for the client that it has to take some before it is served further."""
        return self.outflow.unsent > self.server.limits.unsent_bytes

    def await_relief(self, inbox: Inbox) -> None:
        """Have ``inbox`` go on when the client has taken some of its answers."""
        self._stuck[inbox] = None
        self.outflow.on_relief = self._let_go

    def forget(self, inbox: Inbox) -> None:
        """The call of ``inbox`` is over."""
        self._stuck.pop(inbox, None)
        self.turns.forget(inbox)

    def closed(self, stream: Stream) -> None:
        """A call is over and everything of it has been written."""
        self.streams.pop(stream.number, None)
        if self._held_back:
            self.server.held.size -= len(self._held_back.pop(stream, b""))
        if self._life.has_left:
            self._leave_if_idle()

    # For the connection

    @property
    def owe_answer(self) -> bool:
        """Whether a client waits for something; a streaming call may be open for days without that."""
        return (
            self.outflow.unsent > 0
            or len(self.refusals) > 0
            or any(not stream.is_streaming for stream in self.streams.values())
        )

    @property
    def is_idle(self) -> bool:
        """Whether no call is open."""
        return not self.streams and not self.refusals

    def abandon(self) -> None:
        """Nobody waits for any answer any more."""
        for stream in list(self.streams.values()):
            stream.cancel()
        self.refusals.forget_all()
        self.outflow.drop_all()

    def end_all(self, status: Status, message: str) -> None:
        """The server stops: end every call with a status."""
        for stream in list(self.streams.values()):
            stream.break_off(status, message)
        for number in self.refusals.numbers():
            self._answer_refused(number, is_last=False)

    def check(self, now: float) -> None:
        """End calls of which the client has not sent the rest for too long."""
        for number in self.refusals.late():
            self._answer_refused(number, is_last=False)
        patience = self.server.limits.read_seconds
        for stream in list(self.streams.values()):
            if not stream.is_half_closed and not stream.is_over and stream.stalled(now) > patience > 0:
                stream.break_off(Status.CANCELLED, f"no further byte of the request came for {patience:g} s")

    # Inside

    def _read(self, block: bytes) -> RequestHead | str:
        self.turns.left -= len(block) // _BLOCK_BYTES
        return self._blocks.read(block)

    def _begin(self, stream: Stream, *, is_last: bool) -> None:
        """Begin a call that is not as simple as most are."""
        head = stream.head
        stream.is_half_closed = is_last
        refusal = self._refusal(head)
        if refusal is not None:
            stream.finish(*refusal)
            return
        if head.timeout_ns >= 0:
            stream.begin_timer(head.timeout_ns / 1e9)
        if head.open is not None:
            stream.is_streaming = True
            stream.inbox = Inbox(stream, self)
            opening = head.open
            self.guard(stream, lambda: opening(stream))
        if is_last and not stream.is_over:
            self.guard(stream, (stream.inbox or Inbox(stream, self)).end)

    def _refusal(self, head: RequestHead) -> tuple[Status, str] | None:
        access = self.server.access
        if access is None or head.api is None:
            return None
        refusal = access.refusal(head.api, head.metadata)
        return None if refusal is None else (_REFUSED[refusal.kind], refusal.message)

    def _refuse(self, number: int, refusal: Refusal, *, is_last: bool) -> None:
        self.refusals.hold(number, refusal)
        if is_last or not refusal.body:
            self._answer_refused(number, is_last=is_last)

    def _answer_refused(self, number: int, *, is_last: bool) -> None:
        """Answer a request that is held; ``is_last``: the whole of it has come."""
        self.refusals.answer(number)
        if not is_last:
            # Not a reset: clients that are no gRPC clients would take it for an error and not read the answer.
            self._remember(number, is_told=False)
        self._leave_if_idle()

    def _remember(self, number: int, *, is_told: bool) -> None:
        self._reset[number] = is_told
        if len(self._reset) > _MOST_RESET:
            del self._reset[next(iter(self._reset))]

    def _take_trailers(self, number: int, block: bytes, *, is_last: bool) -> None:
        """What follows a call's messages; it says nothing to us but that they have ended."""
        self.turns.left -= len(block) // _BLOCK_BYTES
        problem = self._blocks.read_trailers(block)
        if number in self.refusals:
            self._answer_refused(number, is_last=is_last)
            return
        stream = self.streams.get(number)
        if stream is None or stream.is_half_closed:
            if number == 0 or not number & 1:
                raise BrokenRulesError(ErrorCode.PROTOCOL_ERROR, "clients begin streams with odd numbers")
            if number not in self._reset:
                raise BrokenRulesError(ErrorCode.STREAM_CLOSED, "HEADERS on a stream that is closed")
        elif problem or not is_last:
            self.fail_stream(number, ErrorCode.PROTOCOL_ERROR)
        else:
            stream.is_half_closed = True
            if not stream.is_over:
                self.guard(stream, (stream.inbox or Inbox(stream, self)).end)

    def _leave_if_idle(self) -> None:
        if self.is_idle and self._life.has_left:
            self._life.finish()

    def _hold_back(self, stream: Stream, message: Buffer) -> None:
        held = self.server.held
        if held.is_full:
            stream.break_off(Status.RESOURCE_EXHAUSTED, "the client leaves too many answers waiting; read those first")
            return
        held.size += len(message)
        self._held_back[stream] = message
        self.outflow.on_relief = self._let_go

    def _let_go(self) -> None:
        """The client has taken some of its answers: go on with what was held back, until too many wait again."""
        held_back = self._held_back
        while held_back and not self.owes_too_much:
            stream = next(iter(held_back))
            message = held_back.pop(stream)
            self.server.held.size -= len(message)
            self.dispatch(stream, message)
        if held_back:
            self.outflow.on_relief = self._let_go
            return
        stuck, self._stuck = self._stuck, {}
        for inbox in stuck:
            self.turns.wait(inbox)
