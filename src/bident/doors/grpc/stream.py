"""One stream of HTTP/2 that is one RPC: the transport's side of a :class:`~bident.doors.grpc.call.Call`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING

from bident.doors.grpc import answer_heads
from bident.doors.grpc.call import Buffer, Status
from bident.doors.grpc.flow import PREFIX
from bident.doors.grpc.frames import ErrorCode
from bident.doors.grpc.outbox import Outbox
from bident.doors.grpc.request_head import RequestHead

if TYPE_CHECKING:
    from bident.doors.grpc.calls import Calls
    from bident.doors.grpc.inbox import Inbox

_PREFIX = Struct(">BI").pack
_JOINED = 4096
"""A smaller message waits in one piece with its prefix: thousands of pieces cost more than they hold."""


class Stream:
    """An RPC and what its answers wait for."""

    # Defaults live on the class: one is made per call, and most never differ from them.
    received_ns: int = 0
    on_message: Callable[[Buffer], None]
    on_half_close: Callable[[], None]
    on_cancel: Callable[[], None] | None = None
    is_over: bool = False
    """Nothing that the service still says goes anywhere."""
    is_closed: bool = False
    """Neither does anything that has been said."""
    is_half_closed: bool = False
    """The client has sent its last frame."""
    is_streaming: bool = False
    inbox: Inbox | None = None
    """What has come and is not a whole message yet, or may not be taken yet."""
    queued: int = 0
    """How many bytes wait in the queue."""
    is_ready: bool = False
    """The outflow has it among those that wait for their turn."""
    credit: int = 0
    """What the client lets us send, less what it lets every new stream send."""
    queue: deque[memoryview]
    _begun: bool = False
    """The head of the answer has been written."""
    _end: bytes | None = None
    """The trailers, while they wait for the messages before them."""
    _outbox: Outbox | None = None
    """Compresses the messages, where that has been agreed on."""
    _received: int = -1
    _received_at: float = 0.0
    """What the sweep saw when something had come that it had not seen, and when that was."""
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, calls: Calls, number: int, head: RequestHead) -> None:
        self._calls = calls
        self.number = number
        self.head = head

    @property
    def method(self) -> bytes:
        """``/package.Service/Method``."""
        return self.head.method

    @property
    def metadata(self) -> Mapping[bytes, bytes]:
        """What came with the call."""
        return self.head.metadata

    @property
    def unsent(self) -> int:
        """How many bytes of answers the client has not taken."""
        return self.queued if self._outbox is None else self.queued + self._outbox.size

    # For the service

    def reply(self, message: Buffer) -> None:
        """Answer a unary call."""
        outflow = self._calls.outflow
        size = len(message) + PREFIX
        if (
            size <= outflow.quick
            and size <= outflow.window
            and self.credit >= 0
            and self.is_half_closed
            and self.head.pack is None
        ):
            if not self.is_over:
                outflow.write_reply(self.number, message, size)
                self._close()
        else:
            self.send(message)
            self.finish()

    def send(self, message: Buffer) -> None:
        """Answer with one more message."""
        if self.is_over:
            return
        if self.head.pack is not None:
            self._packed_outbox().send(message)
        else:
            self.send_plain(message)

    def finish(self, status: int = 0, message: str = "") -> None:
        """End the call."""
        if self.is_over:
            return
        self.is_over = True
        self.on_cancel = None
        if self._outbox is not None and self._outbox.is_busy:
            self._outbox.finish(status, message)
        else:
            self.end(status, message)

    def pause(self) -> None:
        """Take no more messages for now."""
        if self.inbox is not None:
            self.inbox.pause()

    def resume(self) -> None:
        """Take messages again."""
        if self.inbox is not None:
            self.inbox.resume()

    # For the outbox

    def send_plain(self, message: Buffer) -> None:
        """Send a message as it is."""
        outflow = self._calls.outflow
        if not self._begun:
            self._begin(answer_heads.OK_HEAD)
        size = len(message) + PREFIX
        if not self.queued and size <= min(outflow.quick, outflow.window, outflow.room(self)):
            outflow.write_message(self, message, size)
        else:
            self._enqueue(0, message)

    def send_packed(self, message: bytes) -> None:
        """Send a message that has been compressed."""
        if not self._begun:
            assert self.head.pack is not None
            self._begin(answer_heads.packed_head(self.head.pack.name))
        self._enqueue(1, message)

    def end(self, status: int, message: str) -> None:
        """Write the trailers, or have them follow what still waits."""
        if not self._begun:
            self._write_end(answer_heads.trailers_only(status, message))
        elif self.queued:
            self._end = answer_heads.trailers(status, message)
        else:
            self._write_end(answer_heads.trailers(status, message))

    # For the connection and its outflow

    def emptied(self) -> None:
        """Everything in the queue has been sent."""
        if self._end is not None:
            self._write_end(self._end)

    def begin_timer(self, seconds: float) -> None:
        """End the call when the client's patience does."""
        self._timer = self._calls.server.call_later(seconds, self._pass_deadline)

    def stalled(self, now: float) -> float:
        """For how long the client has owed the rest of a message, in seconds; for the sweep, which gives the time."""
        inbox = self.inbox
        received = inbox.received if inbox is not None else 0
        owes = not self.is_streaming or (inbox is not None and inbox.owes_rest)
        if not owes or received != self._received:
            self._received = received
            self._received_at = now
        return now - self._received_at

    def break_off(self, status: Status, message: str) -> None:
        """End the call ourselves; the service learns that nobody waits any more."""
        if self.is_closed:
            return
        self._tell()
        if self.is_over or (self._begun and self.queued):
            # Its trailers wait already, or a message may have been sent in part, which none can follow.
            self._calls.reset(self.number, ErrorCode.CANCEL)
            self.cancel()
        else:
            self.finish(status, message)

    def cancel(self) -> None:
        """The client, or the whole connection, has gone: nothing can be sent any more."""
        self._tell()
        if self.queued:
            self._calls.outflow.drop(self)
        self._close()

    # Inside

    def _tell(self) -> None:
        on_cancel, self.on_cancel = self.on_cancel, None
        if on_cancel is not None and not self.is_over:
            on_cancel()

    def _pass_deadline(self) -> None:
        self._timer = None
        self.break_off(Status.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def _begin(self, block: bytes) -> None:
        self._begun = True
        self.queue = deque()
        self._calls.outflow.write_block(self.number, block, is_last=False)

    def _packed_outbox(self) -> Outbox:
        if self._outbox is None:
            assert self.head.pack is not None
            server = self._calls.server
            self._outbox = Outbox(self, self.head.pack, server)
        return self._outbox

    def _enqueue(self, is_packed: int, message: Buffer) -> None:
        held = self._calls.server.held
        if held.is_full:
            self._calls.reset(self.number, ErrorCode.ENHANCE_YOUR_CALM)
            self.cancel()
        else:
            prefix = _PREFIX(is_packed, len(message))
            pieces = (prefix + message,) if len(message) < _JOINED else (prefix, message)
            self._calls.outflow.enqueue(self, pieces)

    def _write_end(self, block: bytes) -> None:
        outflow = self._calls.outflow
        outflow.write_block(self.number, block, is_last=True)
        if not self.is_half_closed:
            self._calls.reset(self.number, ErrorCode.NO_ERROR)  # it need not send the rest
        self._close()

    def _close(self) -> None:
        self.is_over = self.is_closed = True
        self.on_cancel = None
        if self._timer is not None:
            self._timer.cancel()
        if self.inbox is not None:
            self.inbox.close()
            # Circles that would keep all of it until somebody looks for circles, which is seldom.
            self.inbox = self._outbox = None
            self.__dict__.pop("on_message", None)
            self.__dict__.pop("on_half_close", None)
        self._calls.closed(self)
