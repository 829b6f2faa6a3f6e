"""Keeping a process running: how long to wait before it is started again, and words for how it ended."""

from __future__ import annotations

import contextlib
import signal

STABLE_SECONDS = 60.0
"""A process that has lived so long is started again at once; one that dies sooner waits longer each time."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0


class Pauses:
    """The waits between the ends of one process and its next starts."""

    def __init__(self) -> None:
        self._last = _FIRST_PAUSE

    def after(self, lived: float) -> float:
        """Seconds to wait, now that the process has ended after ``lived`` seconds."""
        self._last = _FIRST_PAUSE if lived > STABLE_SECONDS else min(2 * self._last, _LONGEST_PAUSE)
        return self._last


def ended(code: int) -> str:
    """How a process with the exit ``code`` ended, where that is negative for a signal."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
