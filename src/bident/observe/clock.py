"""Moments as text."""

from __future__ import annotations

import time


def utc(seconds: float) -> str:
    """A Unix time as ISO 8601 in UTC, to the second: ``2026-11-30T16:03:12Z``."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
