"""Threads that load models. Whoever waits for one may give up: what comes too late is closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from bident.engine.servable import LoadedModel

_T = TypeVar("_T")


class LoadingThreads:
    """At most ``count`` of them. Used from the event loop ``loop``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="bident load")
        self._at_work: set[Future[Any]] = set()

    async def run(self, step: Callable[..., _T], *arguments: object) -> _T:
        """What ``step`` returns or raises, once a thread has taken it.

        Cancelled, it leaves the step to its thread, which cannot be stopped; a LoadedModel that it makes is closed.
        """
        unwanted = threading.Event()

        def run() -> _T:
            if unwanted.is_set():
                raise RuntimeError("nobody waits for this any more")
            return step(*arguments)

        try:
            future = self._pool.submit(run)
        except BaseException:  # no thread can be started; yet the pool has noted the step for later
            unwanted.set()
            raise
        self._at_work.add(future)
        future.add_done_callback(self._at_work.discard)
        try:
            return await asyncio.wrap_future(future, loop=self._loop)
        except asyncio.CancelledError:
            future.add_done_callback(_close_unwanted)
            raise

    def close(self) -> bool:
        """Take no further steps. Returns whether a thread is still in one, which is abandoned."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        return bool(self._at_work)


def _close_unwanted(future: Future[Any]) -> None:
    """Close what a load has made that nobody waited for to the end."""
    if not future.cancelled() and future.exception() is None and isinstance(loaded := future.result(), LoadedModel):
        loaded.close()
