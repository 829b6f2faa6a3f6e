"""How long a connection lasts: its patience with the client, keepalive, age, drain, and its end."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING

from bident.doors.grpc import frames
from bident.doors.grpc.frames import LARGEST_WINDOW, BrokenRulesError, ErrorCode, Kind
from bident.doors.grpc.limits import Patience
from bident.doors.grpc.pings import Pings

if TYPE_CHECKING:
    from bident.doors.grpc.connection import GrpcConnection

logger = logging.getLogger("bident.grpc")

_CONTROL_FRAMES = (2000.0, 200.0)
_RESETS = (5000.0, 1000.0)
"""How many at once, and per second: frames that ask for nothing, and calls begun only to be cancelled."""
_LINGER_SECONDS = 2.0
_DRAIN_SECONDS = 5.0
_OURS = b"\0bident\0"
"""The content of a keepalive ping."""
_DRAINING = b"draining"
"""The content of the ping whose answer says that the client has read the first GOAWAY."""


class Life:
    """The life of one connection."""

    __slots__ = (
        "_age_at",
        "_client_leaves",
        "_connection",
        "_control",
        "_drain_at",
        "_ended_at",
        "_frames_noted",
        "_has_settings",
        "_pings",
        "_resets",
        "_stuck",
        "_stuck_at",
        "_transport",
        "_unsent",
        "_unsent_at",
        "has_left",
        "is_over",
        "updates",
    )

    def __init__(self, connection: GrpcConnection, transport: asyncio.Transport, now: float) -> None:
        self._connection = connection
        self._transport = transport
        rules = connection.server.limits.keepalive
        self._pings = Pings(rules)
        self._control = Patience(*_CONTROL_FRAMES)
        self._resets = Patience(*_RESETS)
        self._age_at = now
        """When the connection began, then, once it is draining for its age, when that began."""
        self._has_settings = False
        self._client_leaves = False
        self._drain_at = -1.0
        """When the client was asked to go elsewhere; negative if it was not."""
        self._ended_at = -1.0
        self._frames_noted = 0
        self._unsent = 0
        self._unsent_at = now
        self._stuck = 0
        self._stuck_at = now
        self.has_left = False
        """The last GOAWAY has been sent: no further streams are begun."""
        self.is_over = False
        """Nothing that comes is looked at any more."""
        self.updates = 0
        """How many WINDOW_UPDATE frames have come."""

    # What the client does

    def settings_came(self) -> None:
        """The client has introduced itself."""
        self._has_settings = True

    def client_leaves(self) -> None:
        """The client begins no more calls."""
        self._client_leaves = True

    def ping_answered(self, content: bytes) -> None:
        """A ping of ours came back."""
        self._pings.answered()
        if content == _DRAINING and self._drain_at >= 0:
            self._leave()

    def ping_came(self) -> None:
        """The client asks whether we are alive."""
        connection = self._connection
        if not self._note_answers():
            self.spend()
        if self._pings.came(monotonic(), has_calls=bool(connection.calls.streams)):
            raise BrokenRulesError(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")

    def spend(self, cost: float = 1.0) -> None:
        """A frame came that asks for nothing."""
        if not self._control.spend(monotonic(), cost):
            raise BrokenRulesError(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that ask for nothing")

    def spend_reset(self) -> None:
        """A call was begun in vain."""
        if not self._resets.spend(monotonic()):
            raise BrokenRulesError(ErrorCode.ENHANCE_YOUR_CALM, "too many calls that are cancelled at once")

    # How it ends

    def fail(self, fault: BrokenRulesError) -> None:
        """Tell the client which rule it broke, and end the connection."""
        connection = self._connection
        if self.is_over:
            return
        logger.debug("a connection is ended: %s (%s)", fault.reason, fault.code.name)
        connection.outflow.write(frames.goaway(connection.calls.last_stream, fault.code, fault.reason))
        self.finish()

    def drain(self, reason: str) -> None:
        """Ask the client to go elsewhere with further calls; those it has begun are answered."""
        if self._drain_at < 0 and not self.is_over and self._connection.has_begun:
            self._drain_at = self._connection.server.now
            write = self._connection.outflow.write
            write(frames.goaway(LARGEST_WINDOW, ErrorCode.NO_ERROR, reason))
            write(frames.frame(Kind.PING, 0, 0, _DRAINING))

    def finish(self) -> None:
        """Nothing more is sent after this; the client gets the time to read it."""
        if self.is_over:
            return
        self.is_over = True
        self._ended_at = self._connection.server.now
        self._connection.ignore_frames()
        self._connection.calls.abandon()
        self._connection.outflow.flush()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def check(self, now: float) -> None:
        """Called by the server's sweep: see whether the client still does its part."""
        if self.is_over:
            if now - self._ended_at > _LINGER_SECONDS:
                self._transport.abort()
            return
        self._check_age(now)
        self._check_pace(now)
        self._check_keepalive(now)
        if self._drain_at >= 0 and not self.has_left and now - self._drain_at > _DRAIN_SECONDS:
            self._leave()
        elif self._client_leaves and self._connection.calls.is_idle:
            self.finish()

    # Inside

    def _leave(self) -> None:
        if not self.has_left and not self.is_over:
            self.has_left = True
            self._connection.outflow.write(frames.goaway(self._connection.calls.last_stream, ErrorCode.NO_ERROR))
            if self._connection.calls.is_idle:
                self.finish()

    def _note_answers(self) -> bool:
        """Whether something has been answered since this was last asked: then both sides may ping again."""
        frames_sent = self._connection.outflow.frames
        if frames_sent == self._frames_noted:
            return False
        self._frames_noted = frames_sent
        self._pings.data_sent()
        return True

    def _check_age(self, now: float) -> None:
        rules = self._connection.server.limits.keepalive
        if self._drain_at < 0:
            if 0 < rules.max_connection_age < now - self._age_at:
                self._age_at = now
                self.drain("max_age")
        elif 0 < rules.max_connection_age_grace < now - self._drain_at and rules.max_connection_age > 0:
            self._transport.abort()

    def _check_pace(self, now: float) -> None:
        """Cut off a client that takes none of what waits for it, or does not get its connection begun."""
        limits = self._connection.server.limits
        unsent = self._transport.get_write_buffer_size()
        if unsent != self._unsent or not unsent:
            self._unsent = unsent
            self._unsent_at = now
        stuck = self._connection.outflow.unsent
        if stuck != self._stuck or not stuck:
            self._stuck = stuck
            self._stuck_at = now
        if now - self._unsent_at > limits.write_seconds > 0:
            self._transport.abort()
        elif now - self._stuck_at > limits.stall_seconds > 0:
            self.fail(BrokenRulesError(ErrorCode.ENHANCE_YOUR_CALM, "the windows stay closed"))
        elif not self._has_settings and now - self._age_at > limits.read_seconds > 0:
            self.fail(BrokenRulesError(ErrorCode.SETTINGS_TIMEOUT, "the connection has not begun"))
        else:
            since = self._connection.unfinished_since
            if since is not None and now - since > limits.read_seconds > 0:
                self.fail(BrokenRulesError(ErrorCode.ENHANCE_YOUR_CALM, "a frame or header block does not end"))

    def _check_keepalive(self, now: float) -> None:
        connection = self._connection
        self._note_answers()
        if self._pings.is_overdue(now, connection.heard_at):
            self._transport.abort()
        elif self._pings.is_due(now, connection.heard_at, has_calls=bool(connection.calls.streams)):
            connection.outflow.write(frames.frame(Kind.PING, 0, 0, _OURS))
