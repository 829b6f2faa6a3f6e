"""Long work of the store, done in threads of its own and followed from the event loop by one or several."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any, TypeAlias

from bident.errors import Code, ServeError

Status: TypeAlias = dict[str, Any]
"""``{"status"}``, and of a file on its way ``digest``, ``total`` and ``completed``, as Ollama reports it."""

_MOST_JOBS = 32


class Report:
    """Told by the work how far it is; it is also how the work learns that nobody waits any more."""

    def __init__(self, publish: Callable[[Status], None]) -> None:
        self._publish = publish
        self._unwanted = threading.Event()

    def __call__(self, status: str, **more: Any) -> None:
        self.check()
        self._publish({"status": status, **more})

    def check(self) -> None:
        """Raise CANCELLED when the work is no longer wanted."""
        if self._unwanted.is_set():
            raise ServeError(Code.CANCELLED, "cancelled: nobody waits for it any more")

    def pause(self, seconds: float) -> None:
        """Wait, but not longer than the work is wanted."""
        self._unwanted.wait(seconds)
        self.check()

    def cancel(self) -> None:
        self._unwanted.set()


Work: TypeAlias = Callable[[Report], None]


class Jobs:
    """Work by key: who asks for what is being done already follows it, from its start. Lives on one event loop."""

    def __init__(self) -> None:
        self._running: dict[Hashable, _Job] = {}
        self._ending: set[_Job] = set()

    async def follow(self, key: Hashable, work: Work) -> AsyncIterator[Status]:
        """What ``work`` reports, until it is done. Ending the iteration early stops it unless others follow.

        Raises what the work raised, and UNAVAILABLE when too much is going on.
        """
        job = self._running.get(key)
        if job is None or job.done.done():
            if len(self._running) + len(self._ending) >= _MOST_JOBS:
                raise ServeError(Code.UNAVAILABLE, f"{_MOST_JOBS} models are being made or moved already; try later")
            job = self._running[key] = _Job(work, asyncio.get_running_loop())
            job.done.add_done_callback(lambda _: self._ended(key, job))
        follower = job.join()
        try:
            async for status in follower.statuses():
                yield status
            await asyncio.shield(job.done)
        finally:
            if job.leave(follower) and self._running.get(key) is job:
                del self._running[key]  # who asks now begins anew
                self._ending.add(job)

    async def close(self) -> None:
        """Stop all work and wait for it to end."""
        jobs = [*self._running.values(), *self._ending]
        for job in jobs:
            job.report.cancel()
        await asyncio.gather(*(job.done for job in jobs), return_exceptions=True)

    def _ended(self, key: Hashable, job: _Job) -> None:
        job.done.exception()  # it has been looked at, even if no follower is left to raise it
        self._ending.discard(job)
        if self._running.get(key) is job:
            del self._running[key]


class _Job:
    def __init__(self, work: Work, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self.report = Report(self._tell)
        self._work = work
        self._loop = loop
        self._history: list[Status] = []
        self._followers: set[_Follower] = set()
        threading.Thread(target=self._run, name="bident-text-store", daemon=True).start()

    def join(self) -> _Follower:
        follower = _Follower(self._history)
        self._followers.add(follower)
        if self.done.done():
            follower.end()
        return follower

    def leave(self, follower: _Follower) -> bool:
        """Returns whether the work has been called off."""
        self._followers.discard(follower)
        if self._followers or self.done.done():
            return False
        self.report.cancel()
        return True

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._work(self.report)
        except BaseException as raised:  # noqa: BLE001 - it is raised where the work is followed
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self._end, error)

    def _tell(self, status: Status) -> None:
        """Called by the thread of the work."""
        self._loop.call_soon_threadsafe(self._publish, status)

    def _publish(self, status: Status) -> None:
        _append(self._history, status)
        for follower in self._followers:
            follower.add(status)

    def _end(self, error: BaseException | None) -> None:
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
        for follower in self._followers:
            follower.end()


class _Follower:
    """What one follower has not seen yet. Of the steps of one file only the last is kept, so it stays small."""

    def __init__(self, history: list[Status]) -> None:
        self._unseen = list(history)
        self._ended = False
        self._news = asyncio.Event()
        if self._unseen:
            self._news.set()

    def add(self, status: Status) -> None:
        _append(self._unseen, status)
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def statuses(self) -> AsyncIterator[Status]:
        while True:
            await self._news.wait()
            self._news.clear()
            unseen, self._unseen = self._unseen, []
            for status in unseen:
                yield status
            if self._ended and not self._unseen:
                return


def _append(statuses: list[Status], status: Status) -> None:
    last = statuses[-1] if statuses else {}
    if "completed" in status and "completed" in last and last.get("digest") == status.get("digest"):
        statuses[-1] = status
    else:
        statuses.append(status)
