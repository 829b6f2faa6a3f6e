"""One model: the requests that wait for it, the child that answers them, and how long it stays."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone

from bident.errors import Code, ServeError
from bident.text.runner.crashes import Crashes
from bident.text.runner.limits import Limits
from bident.text.runner.loaded import Loaded
from bident.text.runner.process import Process
from bident.text.runner.wish import Wish

logger = logging.getLogger("bident.text")

_QUEUE_FULL = "server busy, please try again.  maximum pending requests exceeded"
_ENDLESS_SECONDS = 10 * 365 * 86400.0
"""Longer than any timer can be trusted with, and than anyone waits."""


@dataclass(eq=False)
class _Ticket:
    """A request in line."""

    wish: Wish
    keep_alive: float | None
    admitted: asyncio.Future[Loaded] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass
class Turnover:
    """How often a model has come, and gone without being told to."""

    loads: int = 0
    load_seconds: float = 0.0
    """On all loads together."""
    crashes: int = 0
    """Loads that failed by the model's fault count too."""


class Resident:
    """A model's place in memory. Requests are admitted in the order in which they came.

    ``load(resident, wish)`` makes room, starts a child (ending the present one first) and returns it.
    Everything happens on the loop; between two awaits nothing changes.
    """

    def __init__(
        self,
        label: str,
        limits: Limits,
        load: Callable[[Resident, Wish], Awaitable[Loaded]],
        turnover: Turnover | None = None,
    ) -> None:
        self.label = label
        self.turnover = turnover or Turnover()
        self.loaded: Loaded | None = None
        self.arriving: Process | None = None
        """A child that has its memory and does not listen yet; ``load`` says so."""
        self.keep_alive = limits.keep_alive
        self.used_at = time.monotonic()
        self.leaving = False
        """Another model has been promised its memory: nobody is admitted any more."""
        self.crashes = Crashes(limits)
        self._limits = limits
        self._load = load
        self._line: deque[_Ticket] = deque()
        self._loading: asyncio.Task[Loaded] | None = None
        self._reviving = False
        self._crashed_as: Wish | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._unloading: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def is_idle(self) -> bool:
        """Nobody uses it and nobody waits for it."""
        return not self._line and self._loading is None and (self.loaded is None or not self.loaded.active)

    @property
    def pid(self) -> int | None:
        """The process that has memory for it."""
        process = self.loaded.process if self.loaded is not None else self.arriving
        return process.pid if process is not None else None

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return len(self._line)

    @property
    def is_forgotten(self) -> bool:
        """There is nothing to know about it any more."""
        ending = self._unloading is not None and not self._unloading.done()
        return self.is_idle and self.loaded is None and not ending and not self.crashes.count

    @property
    def expires_at(self) -> datetime | None:
        """When it is unloaded if nobody asks for it again; None for never."""
        seconds = self.keep_alive
        if self._timer is not None:
            seconds = self._timer.when() - asyncio.get_running_loop().time()
        if seconds >= _ENDLESS_SECONDS:
            return None
        return datetime.fromtimestamp(time.time() + max(seconds, 0.0), timezone.utc)

    async def enter(self, wish: Wish, keep_alive: float | None) -> Loaded:
        """Wait for a slot; :meth:`leave` gives it back.

        Raises UNAVAILABLE when too many wait already or the model keeps crashing, and whatever loading raises.
        """
        self._refuse_if_failed(wish)
        ticket = _Ticket(wish, keep_alive)
        self._line.append(ticket)
        self.advance()
        if len(self._line) > max(1, self._limits.max_queue) and not ticket.admitted.done():
            self._line.remove(ticket)
            raise ServeError(Code.UNAVAILABLE, _QUEUE_FULL)
        try:
            return await ticket.admitted
        except asyncio.CancelledError:
            self._withdraw(ticket)
            raise

    def leave(self, loaded: Loaded) -> None:
        """Give back a slot of ``loaded``."""
        loaded.active -= 1
        self.used_at = time.monotonic()
        self.advance()

    def advance(self) -> None:
        """Do what can be done now: admit, load, or start the clock. To be called whenever anything has changed."""
        while self._line and self._line[0].admitted.done():  # its client has gone and will withdraw it
            self._line.popleft()
        self._admit()
        loaded = self.loaded
        in_use = loaded is not None and loaded.active > 0
        if in_use:
            self._quiet.clear()
        else:
            self._quiet.set()
        if self._line and not in_use and not self.leaving and self._loading is None and not self._closed:
            head = self._line[0].wish
            if loaded is None or not head.is_met_by(loaded.wish):
                self._begin_loading(head)
        self._set_clock()

    async def drained(self) -> None:
        """Return when nobody uses it. Meant for whoever has set ``leaving``: otherwise the next one is admitted."""
        await self._quiet.wait()

    async def give_up(self) -> None:
        """Unload it, if it is loaded. Returns when its memory is free."""
        loaded, self.loaded = self.loaded, None
        if loaded is not None:
            await loaded.stop()

    async def unload(self) -> None:
        """Unload it now, or when those who use it are done. As if it had been asked for with ``keep_alive`` 0."""
        self.keep_alive = 0.0
        self.crashes.clear()
        if not self._line and self._loading is not None:
            self._loading.cancel()
        self.advance()
        await self.settled()

    async def arrived(self) -> None:
        """Return when what is being loaded is there, or will not be."""
        if self._loading is not None:
            await asyncio.wait([self._loading])

    async def settled(self) -> None:
        """Return when a child that is ending has given everything back."""
        if self._unloading is not None:
            await asyncio.shield(self._unloading)

    async def close(self) -> None:
        """End everything; those in line are told."""
        self._closed = True
        self._refuse(lambda _: True, ServeError(Code.UNAVAILABLE, "the server is shutting down"))
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        await self.give_up()
        await self.settled()
        self.advance()

    # ------------------------------------------------------------------ the line

    def _admit(self) -> None:
        loaded = self.loaded
        while self._line and loaded is not None and not self.leaving and self._loading is None:
            ticket = self._line[0]
            if ticket.admitted.done():
                self._line.popleft()
                continue
            if loaded.active >= loaded.plan.slots or not ticket.wish.is_met_by(loaded.wish):
                return
            self._line.popleft()
            loaded.active += 1
            if ticket.keep_alive is not None:
                self.keep_alive = ticket.keep_alive
            ticket.admitted.set_result(loaded)

    def _withdraw(self, ticket: _Ticket) -> None:
        """The client of ``ticket`` has gone."""
        if ticket in self._line:
            self._line.remove(ticket)
        elif not ticket.admitted.cancelled() and ticket.admitted.exception() is None:
            self.leave(ticket.admitted.result())
        if not self._line and self._loading is not None and not self._reviving:
            self._loading.cancel()
        self.advance()

    def _refuse(self, whom: Callable[[Wish], bool], error: ServeError) -> None:
        for ticket in [ticket for ticket in self._line if whom(ticket.wish)]:
            self._line.remove(ticket)
            if not ticket.admitted.done():
                ticket.admitted.set_exception(error)

    def _refuse_if_failed(self, wish: Wish) -> None:
        if self._closed:
            raise ServeError(Code.UNAVAILABLE, "the server is shutting down")
        if self.loaded is None and self._crashed_as is not None and wish.stamp != self._crashed_as.stamp:
            self.crashes.clear()
        if self.loaded is None and self.crashes.rest_seconds:
            raise self._failure()

    def _failure(self) -> ServeError:
        return ServeError(
            Code.UNAVAILABLE,
            f"model '{self.label}' has failed: it crashed {self.crashes.count} times within "
            f"{self._limits.crash_window:g} seconds. The last time: {self.crashes.reason}. It is tried again in "
            f"{math.ceil(self.crashes.rest_seconds)} seconds, or when its files change or it is stopped",
        )

    # ------------------------------------------------------------------ loading

    def _begin_loading(self, wish: Wish, after: float = 0.0, *, reviving: bool = False) -> None:
        if self.loaded is None and not reviving:
            self.keep_alive = self._limits.keep_alive
        self._reviving = reviving
        self._loading = asyncio.create_task(self._bring(wish, after))
        # Not within the task: one that is cancelled before its first step never gets to its ``finally``.
        self._loading.add_done_callback(lambda task: self._settle(task, wish))

    async def _bring(self, wish: Wish, after: float) -> Loaded:
        await asyncio.sleep(after)
        return await self._load(self, wish)

    def _settle(self, task: asyncio.Task[Loaded], wish: Wish) -> None:
        self._loading = self.arriving = None
        if task.cancelled():
            pass
        elif (error := task.exception()) is not None:
            self._note_failure(wish, error)
        else:
            self.loaded = loaded = task.result()
            self.used_at = time.monotonic()
            loaded.process.when_ended(lambda: self._bury(loaded))
        self.advance()

    def _note_failure(self, wish: Wish, error: BaseException) -> None:
        if not isinstance(error, ServeError):
            logger.error("model '%s' could not be loaded", self.label, exc_info=error)
            error = ServeError(Code.INTERNAL, f"unable to load model '{self.label}': {error}")
        else:
            logger.error("%s", error.message)
        if error.code is Code.INTERNAL:
            self._note_crash(wish, error.message)
        self._refuse(lambda other: other.asks_as_much_as(wish), error)

    def _bury(self, loaded: Loaded) -> None:
        """The child has ended by itself: those who used it notice; here is what follows for the others."""
        if self.loaded is not loaded:
            return
        self.loaded = None
        self._note_crash(loaded.wish, loaded.process.how)
        logger.error("model '%s' crashed: %s", self.label, loaded.process.how)
        if self.crashes.rest_seconds:
            self._refuse(lambda _: True, self._failure())
        elif (self._line or self.keep_alive > 0) and not self._closed and self._loading is None:
            self._begin_loading(loaded.wish, self.crashes.backoff_seconds, reviving=True)
        self.advance()

    def _note_crash(self, wish: Wish, reason: str) -> None:
        self._crashed_as = wish
        self.crashes.add(reason)
        self.turnover.crashes += 1

    # ------------------------------------------------------------------ the clock

    def _set_clock(self) -> None:
        """The time to live runs while the model is loaded and nobody uses or wants it."""
        counts = self.loaded is not None and self.is_idle and not self.leaving and not self._closed
        if self._timer is not None and (not counts or self.keep_alive <= 0):
            self._timer.cancel()
            self._timer = None
        if counts and self.keep_alive <= 0:
            self._expire()
        elif counts and self._timer is None and self.keep_alive < _ENDLESS_SECONDS:
            self._timer = asyncio.get_running_loop().call_later(self.keep_alive, self._expire)

    def _expire(self) -> None:
        self._timer = None
        loaded, self.loaded = self.loaded, None
        if loaded is not None:
            self._unloading = asyncio.create_task(loaded.stop())
