"""Work that would keep the event loop from other clients, done by threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

READ_HERE = 1 << 20
"""Up to this many bytes of JSON, of typed elements or of strings the event loop reads itself."""

_Result = TypeVar("_Result")

# Half of the processors: the event loop and the models need the others.
_workers = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2), "bident large bodies")


async def aside(work: Callable[[], _Result]) -> _Result:
    """What ``work`` returns or raises, once a thread has done it."""
    return await asyncio.get_running_loop().run_in_executor(_workers, work)
