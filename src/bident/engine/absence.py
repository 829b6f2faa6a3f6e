"""When none of a model's instances is there: how long requests wait for one, and what they are told."""

from __future__ import annotations

from collections.abc import Sequence

from bident.engine.request_lane import RequestLane
from bident.errors import Code, ServeError

_HOLD_NS = 5_000_000_000
"""A worker that died is back within a moment; its model's requests wait so long for it, and no longer."""


class Absence:
    """Whether a model whose instances can go has lost them all."""

    def __init__(self, lanes: Sequence[RequestLane]) -> None:
        self.lanes = lanes
        self.refuses = False
        """Whether requests are no longer kept waiting, but told ``error()``."""
        self.over_ns = 0
        """Until when requests wait for an instance to come back, on the monotonic clock; 0 while there is one."""

    def look(self, now_ns: int) -> None:
        """See which instances are there."""
        if not self.lanes or any(lane.is_available for lane in self.lanes):
            self.over_ns = 0
            self.refuses = False
        elif not self.over_ns:
            self.over_ns = now_ns + _HOLD_NS
        if self.over_ns and all(lane.is_lost for lane in self.lanes):
            self.over_ns = now_ns

    def has_lasted(self, now_ns: int) -> bool:
        """Whether requests have waited long enough; then ``error()`` says why."""
        self.refuses = now_ns >= self.over_ns
        return self.refuses

    def error(self) -> ServeError:
        """Why there is no instance, as things stand now: an outage goes through many states."""
        reasons = "; ".join(sorted({lane.reason for lane in self.lanes}))
        # Instances that will not come back say themselves what it takes to have them again.
        cure = "" if all(lane.is_lost for lane in self.lanes) else "; try again later"
        return ServeError(
            Code.UNAVAILABLE, f"model '{self.lanes[0].name}' is not ready, none of its instances is: {reasons}{cure}"
        )
