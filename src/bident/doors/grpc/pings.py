"""PING both ways, by gRPC's keepalive rules (its flags ``grpc.keepalive_*`` and ``grpc.http2.*ping*``)."""

from __future__ import annotations

from bident.doors.grpc.limits import Keepalive

_IDLE_INTERVAL = 7200.0
"""Seconds that must lie between pings of a client without calls, unless those are permitted."""
_NEVER = float("-inf")


class Pings:
    """When one connection is asked whether it is alive, and whether it asks too often."""

    __slots__ = ("_asked_at", "_last_came_at", "_rules", "_sent_without_data", "_strikes")

    def __init__(self, rules: Keepalive) -> None:
        self._rules = rules
        self._asked_at = -1.0
        """When the ping was sent that has not been answered; negative if there is none."""
        self._sent_without_data = 0
        self._last_came_at = _NEVER
        self._strikes = 0

    def data_sent(self) -> None:
        """Something of an answer has gone out: both sides may ask again."""
        self._sent_without_data = 0
        self._last_came_at = _NEVER
        self._strikes = 0

    def answered(self) -> None:
        """The client is alive."""
        self._asked_at = -1.0

    def came(self, now: float, *, has_calls: bool) -> bool:
        """The client asks, at ``now`` (seconds); returns whether that is once too often."""
        rules = self._rules
        is_busy = has_calls or rules.permit_without_calls
        interval = rules.min_recv_ping_interval_without_data if is_busy else _IDLE_INTERVAL
        is_early = now < self._last_came_at + interval
        self._last_came_at = now
        if is_early:
            self._strikes += 1
        return 0 < rules.max_ping_strikes < self._strikes

    def is_due(self, now: float, heard_at: float, *, has_calls: bool) -> bool:
        """Whether to ask a client that was last heard of at ``heard_at``; it counts as asked then."""
        rules = self._rules
        if self._asked_at >= 0 or now - heard_at < rules.time or not (has_calls or rules.permit_without_calls):
            return False
        if 0 < rules.max_pings_without_data <= self._sent_without_data:
            return False
        self._sent_without_data += 1
        self._asked_at = now
        return True

    def is_overdue(self, now: float, heard_at: float) -> bool:
        """Whether the client has left a ping unanswered for too long, and sent nothing else either."""
        if self._asked_at < 0 or heard_at > self._asked_at:
            self._asked_at = -1.0
            return False
        return now - self._asked_at >= self._rules.timeout
