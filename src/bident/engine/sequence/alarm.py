"""A timer that is set again and again, and mostly for later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns


class Alarm:
    """Calls ``ring`` on the event loop ``loop``, at the latest when it was set to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._due_ns = 0

    @property
    def is_set(self) -> bool:
        """Whether it will ring."""
        return self._timer is not None

    def set(self, due_ns: int, *, exactly: bool) -> None:
        """Ring at ``due_ns`` on the monotonic clock (0: never); not ``exactly``: or earlier, as it was set before.

        To ring early does no harm, and is cheaper than to set the timer for each request.
        """
        if self._timer is not None:
            if not exactly and (not due_ns or self._due_ns <= due_ns):
                return
            self._timer.cancel()
            self._timer = None
        if due_ns:
            self._due_ns = due_ns
            self._timer = self._loop.call_later(max(0, due_ns - monotonic_ns()) / 1e9, self._rung)

    def _rung(self) -> None:
        self._timer = None
        self._ring()
