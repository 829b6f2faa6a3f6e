"""Brings what is loaded in line with what the repositories hold: one model, those of the start, whatever has changed.

What an ensemble is made of is loaded before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from bident.engine.holdings import Holdings
from bident.engine.lifecycle import Lifecycle
from bident.engine.load_order import LoadOrder
from bident.engine.readying import Gate
from bident.errors import ServeError
from bident.model.folder import ModelFolder
from bident.model.repository import Listing

logger = logging.getLogger("bident.engine")


class Reconciler:
    """Does that for one engine. Lives on the event loop."""

    def __init__(self, holdings: Holdings, lifecycle: Lifecycle) -> None:
        self._holdings = holdings
        self._lifecycle = lifecycle
        self._in_hand: set[str] = set()
        """Models that the start or a look at the repository is still loading, however long they take."""
        self._tried_with: dict[str, dict[str, object]] = {}
        """Ensembles that could not be loaded, with what their members were like then."""

    async def look(self) -> Listing:
        """What is on disk now. What is wrong there is logged."""
        listing = await self._holdings.look()
        for problem in listing.problems:
            logger.error("%s", problem)
        return listing

    async def load(self, folder: ModelFolder, gate: Gate | None = None) -> None:
        """Load ``folder``, and before it what it is made of. Raises as ``Lifecycle.load``."""
        await self._load(folder, self._order(), gate=gate)

    async def load_all(self, names: Iterable[str]) -> dict[str, ServeError]:
        """Load ``names``, side by side. Returns what could not be loaded."""
        failures: dict[str, ServeError] = {}
        order = self._order()

        async def load(name: str) -> None:
            try:
                folder = await self._holdings.find(name)
            except ServeError as error:
                shown = name.encode("utf-8", "backslashreplace").decode("utf-8")
                self._lifecycle.refuse(shown, error)
                failures[shown] = error
                return
            try:
                await self._load(folder, order)
            except ServeError as error:
                failures[name] = error

        for name in names:
            order.begin(name, self._once(load, name))
        await order.finish()
        return failures

    async def follow_all(self) -> None:
        """Load what is new or has changed, unload what has vanished; what is still being loaded is left to that."""
        listing = await self.look()
        # What cannot be read now (a share that is away for a moment) has not vanished.
        present = listing.unreadable | self._holdings.names
        gone = [self._once(self._drop, name) for name in self._lifecycle.names() if name not in present]
        order = self._order()
        for name in listing.names:
            order.begin(name, self._once(partial(self._follow, order), name))
        await asyncio.gather(*gone, order.finish())

    def _order(self) -> LoadOrder:
        return LoadOrder(self._lifecycle, self._load_member)

    async def _load(
        self, folder: ModelFolder, order: LoadOrder, *, unless_served: bool = False, gate: Gate | None = None
    ) -> None:
        """Load ``folder``, and before it, in ``order``, what it is made of."""
        name = folder.name
        circle = await order.members_first(folder)
        try:
            await self._lifecycle.load(folder, refused=circle, unless_served=unless_served, gate=gate)
        except ServeError:
            members = order.members(name)
            if members:
                self._tried_with[name] = {member: self._lifecycle.fingerprint(member) for member in members}
            raise
        self._tried_with.pop(name, None)

    async def _load_member(self, name: str, order: LoadOrder) -> None:
        """Load what an ensemble is made of. Raises nothing: the ensemble's own load finds out what is missing."""
        try:
            await self._load(await self._holdings.find(name), order, unless_served=True)
        except ServeError as error:
            logger.debug("a member could not be loaded: %s", error.message)

    async def _once(self, step: Callable[[str], Awaitable[None]], name: str) -> None:
        """Take ``step`` for ``name``, unless an earlier one still goes on."""
        if name in self._in_hand:
            return
        self._in_hand.add(name)
        try:
            await step(name)
        finally:
            self._in_hand.discard(name)

    async def _drop(self, name: str) -> None:
        await self._lifecycle.unload(name)
        self._lifecycle.forget(name)
        self._tried_with.pop(name, None)

    async def _follow(self, order: LoadOrder, name: str) -> None:
        """Load ``name`` if its folder looks different from when that was last tried, or its members do."""
        try:
            folder = await self._holdings.find(name)
        except ServeError as error:
            self._lifecycle.refuse(name, error)
            return
        try:
            fingerprint = await asyncio.get_running_loop().run_in_executor(None, folder.fingerprint)
            if fingerprint != self._lifecycle.attempted(name) or await self._can_be_retried(folder, order):
                await self._load(folder, order)
        except ServeError as error:
            logger.error("polling '%s': %s", name, error.message)
        except Exception:
            logger.exception("polling '%s' failed", name)

    async def _can_be_retried(self, folder: ModelFolder, order: LoadOrder) -> bool:
        """Whether ``folder`` is an ensemble that could not be loaded, and its members are not what they were then."""
        before = self._tried_with.get(folder.name)
        if before is None:
            return False
        await order.members_first(folder)
        return any(self._lifecycle.fingerprint(member) != fingerprint for member, fingerprint in before.items())
