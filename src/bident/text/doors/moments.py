"""Moments as Ollama writes them: RFC 3339 to the nanosecond, in UTC."""

from __future__ import annotations

import time
from datetime import datetime

FOREVER = "2318-03-10T23:47:16.854775807Z"
"""When a model is unloaded that never is: as far away as Ollama's clock reaches."""
UNKNOWN = "0001-01-01T00:00:00Z"
"""Go's zero."""


def utc_nanoseconds(nanoseconds: int) -> str:
    """A Unix time in nanoseconds: ``2026-11-30T16:03:12.123456789Z``."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09d}Z"


def utc_moment(moment: datetime) -> str:
    """A moment with a time zone."""
    return utc_nanoseconds(int(moment.timestamp() * 1_000_000) * 1000)
