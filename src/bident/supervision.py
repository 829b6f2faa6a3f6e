"""Keeping processes running: how long to wait before one is started again, how it ended, what it prints."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence

STABLE_SECONDS = 60.0
"""A process that has lived so long is started again at once; one that dies sooner waits longer each time."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
_SEPARATOR = " | "


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


def labels(names: Sequence[str]) -> list[str]:
    """What the lines that processes print begin with, where they are shown in one log: names of one width."""
    width = max(map(len, names))
    return [f"{name:{width}}{_SEPARATOR}" for name in names]


def unlabelled(line: str) -> str:
    """A line of such a log as its process printed it."""
    name, separator, printed = line.partition(_SEPARATOR)
    return printed if separator and name.strip().isalpha() else line
