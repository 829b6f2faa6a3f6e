"""Waiting on the spot for what comes sooner than going to sleep and being woken would take.

To hand a small batch to another process, sleep, and be woken by its answer costs more than quick
models take. So the event loop looks for the answer for a moment, as it would have executed a
quick native model itself: for no longer than that may take, and only where that has mostly been
enough. Meanwhile other clients' requests come together, and run together next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from time import monotonic_ns

from bident.engine.lane import INLINE_LIMIT_NS

_LEARN = 0.2
_WORTH = 0.5
_PROBE = 64
"""Where it has not been enough, one batch in so many finds out whether it is by now."""

_let_others_run: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))
"""Who is waited for may need this very processor, and this interpreter's lock."""


class Spin:
    """What is known of one instance's answers, by the size of the batch."""

    __slots__ = ("_score", "_skipped")

    def __init__(self) -> None:
        self._score: dict[int, float] = {}
        self._skipped = 0

    def is_worth(self, rows: int) -> bool:
        """Whether the answer to a batch of ``rows`` rows is to be waited for."""
        if self._score.get(rows.bit_length(), 1.0) > _WORTH:
            return True
        self._skipped += 1
        return self._skipped % _PROBE == 0

    def wait(self, rows: int, look: Callable[[], bool]) -> None:
        """Call ``look`` until it returns True, or the limit is over; remember which."""
        end = monotonic_ns() + INLINE_LIMIT_NS
        while not (came := look()) and monotonic_ns() < end:
            _let_others_run()
        size = rows.bit_length()
        score = self._score.get(size, 1.0)
        self._score[size] = score + (came - score) * _LEARN
