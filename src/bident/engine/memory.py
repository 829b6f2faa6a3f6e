"""Gives memory that loading has freed back to the system."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import lru_cache


def trim() -> None:
    """Return what the C allocator holds but nobody uses. May take milliseconds: never call it on the loop.

    Reading a model file takes up to twice its size for a moment, and glibc keeps that for later
    allocations of the same thread, which for a load never come. Other allocators need no such call.
    """
    malloc_trim = _malloc_trim()
    if malloc_trim is not None:
        malloc_trim(0)


@lru_cache(maxsize=1)
def _malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # musl has none
        return None
