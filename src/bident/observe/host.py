"""What the machine is doing: processor and memory, for the metrics page."""

from __future__ import annotations

import time
from typing import NamedTuple

import psutil


class Load(NamedTuple):
    """One measurement."""

    processor: float
    """Share of all cores that was busy since the one before, 0 to 1."""
    memory_total: int
    """Bytes of memory this machine has."""
    memory_used: int
    """Bytes of memory in use."""


class Host:
    """Measures the host's load when it is asked, and at most once in an interval. The first processor load is 0."""

    def __init__(self, interval_seconds: float = 0.0) -> None:
        psutil.cpu_percent(None)
        self._interval_seconds = interval_seconds
        self._measured_at = time.monotonic()
        self._last: Load | None = None

    def load(self) -> Load:
        """The last measurement, unless that is too old."""
        now = time.monotonic()
        if self._last is None or now - self._measured_at >= self._interval_seconds:
            memory = psutil.virtual_memory()
            self._last = Load(float(psutil.cpu_percent(None)) / 100.0, int(memory.total), int(memory.used))
            self._measured_at = now
        return self._last
