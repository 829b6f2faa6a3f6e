"""One RPC as a service sees it, and what the transport asks of a service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

from bident.doors.access import Api

Buffer = bytes | bytearray | memoryview


class Status(IntEnum):
    """How a call ends (gRPC's status codes)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Call(Protocol):
    """What was asked, and the way to answer.

    A unary call is answered by one ``reply``, or by ``finish`` with a status that is an error; a streaming
    one by any number of ``send`` and one ``finish``. All of it happens on the event loop. Once ``is_over``,
    whatever is sent goes nowhere, without an error: a client may go at any moment.
    """

    received_ns: int
    """``monotonic_ns`` of the last byte of the first message."""
    on_message: Callable[[Buffer], None]
    """Streaming calls: called with each whole message, decompressed. Set by the service's ``open``."""
    on_half_close: Callable[[], None]
    """Streaming calls: called once, when the client has sent its last message. Set by the service's ``open``."""
    on_cancel: Callable[[], None] | None
    """Called when nobody waits for the answer any more: the client cancelled or has gone, or the deadline passed."""

    @property
    def method(self) -> bytes:
        """``/package.Service/Method``."""
        ...

    @property
    def metadata(self) -> Mapping[bytes, bytes]:
        """Keys in lower case; what came repeatedly is joined with ``, ``. Calls may share it."""
        ...

    @property
    def is_over(self) -> bool:
        """Finished, cancelled, or past its deadline."""
        ...

    @property
    def unsent(self) -> int:
        """How many bytes of this call's answers the client has not taken."""
        ...

    def reply(self, message: Buffer) -> None:
        """Answer a unary call: headers, ``message`` and an OK status at once. The hot path."""
        ...

    def send(self, message: Buffer) -> None:
        """Answer a streaming call with one more ``message``."""
        ...

    def finish(self, status: int = 0, message: str = "") -> None:
        """End the call with a gRPC status; what has been sent before still reaches the client."""
        ...

    def pause(self) -> None:
        """Take no more messages of this streaming call until ``resume``; the client's flow control makes it wait."""
        ...

    def resume(self) -> None:
        """Take messages again; those that have come meanwhile do so in later turns of the loop."""
        ...


Serve = Callable[[Call, Buffer], Awaitable[None] | None]
"""Called once with the whole request. What it returns, if anything, is run as a task."""
Open = Callable[[Call], None]
"""Called when the call begins; sets ``on_message`` and ``on_half_close``, and may set ``on_cancel``."""


class Method(NamedTuple):
    """How one method is served: exactly one of ``serve`` (unary) and ``open`` (streaming) is set."""

    serve: Serve | None = None
    open: Open | None = None
    api: Api | None = None
    """What access rules call it; None for what is open to everybody."""


class Service(Protocol):
    """What the transport serves."""

    def find(self, method: bytes) -> Method | None:
        """How ``method`` (``/package.Service/Method``) is served; None if it is not."""
        ...
