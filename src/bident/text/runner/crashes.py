"""How often a model has crashed of late, and what follows from it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from bident.text.runner.limits import Limits


class Crashes:
    """The crashes of one model within the window of ``limits``. ``clock`` gives seconds."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._times: deque[float] = deque(maxlen=limits.crash_limit)
        self.reason = ""
        """Of the last one."""

    def add(self, reason: str) -> None:
        """Note a crash that happens now."""
        self._times.append(self._clock())
        self.reason = reason

    def clear(self) -> None:
        """Forget them all: the model is another one now, or somebody wants it tried again."""
        self._times.clear()

    @property
    def count(self) -> int:
        """Crashes within the window."""
        while self._times and self._clock() - self._times[0] >= self._limits.crash_window:
            self._times.popleft()
        return len(self._times)

    @property
    def rest_seconds(self) -> float:
        """For how long the model is not to be started again; 0 if it may be."""
        if self.count < self._limits.crash_limit:
            return 0.0
        return max(0.0, self._times[0] + self._limits.crash_window - self._clock())

    @property
    def backoff_seconds(self) -> float:
        """How long to wait before the next start."""
        return self._limits.backoff_seconds * 2.0 ** (self.count - 2) if self.count > 1 else 0.0
