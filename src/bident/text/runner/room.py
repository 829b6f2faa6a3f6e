"""Room for a model that is to be loaded: how much there is, who has to leave for it, how many slots it gets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from bident.errors import Code, ServeError
from bident.text.runner.limits import Limits
from bident.text.runner.machine import available_memory, memory_of, usable_cores
from bident.text.runner.memory import need_of, refusal
from bident.text.runner.plan import Plan
from bident.text.runner.resident import Resident
from bident.text.runner.wish import Wish, embeds_only

logger = logging.getLogger("bident.text")


class Room:
    """Decides what fits.

    ``available`` measures the bytes that processes can still be given; ``taken_by`` those that a process uses, and
    how many of them are files, which count as available.
    """

    def __init__(
        self,
        limits: Limits,
        available: Callable[[], int] = available_memory,
        taken_by: Callable[[int], tuple[int, int]] = memory_of,
    ) -> None:
        self._limits = limits
        self._available = available
        self._taken_by = taken_by

    async def make(self, resident: Resident, others: Sequence[Resident], wish: Wish) -> Plan:
        """How to load ``wish``, after the ``others`` that must leave for it are gone: least recently used first.

        A model gets fewer slots before another one has to leave. Its present child counts as gone. Raises
        UNAVAILABLE with the numbers, before anyone has to leave, when it would not fit even alone.
        """
        for other in (resident, *others):
            await other.settled()
        self._require_to_fit_alone(resident, others, wish)
        while True:
            plan = self._fitting(resident, others, wish)
            if plan is not None and not self._too_many(others):
                return plan
            if (victim := _least_recently_used(others)) is not None:
                await self._evict(victim, wish)
            elif (coming := next((other for other in others if other.arriving), None)) is not None:
                await coming.arrived()  # before that it cannot leave
            else:
                raise self._refusal(wish, resident, others)

    async def _evict(self, victim: Resident, wish: Wish) -> None:
        logger.info("model '%s' makes room for '%s'", victim.label, wish.model.name.short)
        victim.leaving = True
        try:
            await victim.drained()
            await victim.give_up()
        finally:
            victim.leaving = False
            victim.advance()

    def _fitting(self, resident: Resident, others: Sequence[Resident], wish: Wish) -> Plan | None:
        free = self._free(resident, others)
        for plan in self._plans(others, wish):
            if need_of(wish.model, plan).total <= free:
                return plan
        return None

    def _plans(self, others: Sequence[Resident], wish: Wish) -> Iterator[Plan]:
        """With all slots, with half of them, and so on down to one."""
        slots = 1 if embeds_only(wish.model) else max(1, self._limits.slots)
        threads = self._threads(others)
        while slots:
            yield wish.plan(self._limits, slots, threads)
            slots //= 2

    def _threads(self, others: Sequence[Resident]) -> int:
        """A fair share of the threads. Models that are loaded already keep theirs until they are loaded anew."""
        threads = self._limits.threads or usable_cores() - 1
        return max(1, threads // (1 + _count(others)))

    def _free(self, resident: Resident, others: Sequence[Resident]) -> int:
        """Bytes for a new child. What the present one has comes back; the files that others have mapped must stay."""
        own = self._taken_by(resident.loaded.process.pid) if resident.loaded else (0, 0)
        taken = [self._taken_by(other.pid) for other in others if other.pid is not None]
        free = self._available() + own[0] - own[1] - sum(mapped for _, mapped in taken) - self._limits.memory_reserve
        if self._limits.memory:
            free = min(free, self._limits.memory - sum(used for used, _ in taken))
        return max(free, 0)

    def _require_to_fit_alone(self, resident: Resident, others: Sequence[Resident], wish: Wish) -> None:
        used = sum(self._taken_by(other.pid)[0] for other in others if other.pid is not None)
        *_, smallest = self._plans((), wish)
        if need_of(wish.model, smallest).total > self._free(resident, others) + used:
            raise self._refusal(wish, resident, others, used)

    def _refusal(self, wish: Wish, resident: Resident, others: Sequence[Resident], used: int = 0) -> ServeError:
        *_, smallest = self._plans((), wish)
        free = self._free(resident, others) + used
        return ServeError(Code.UNAVAILABLE, refusal(need_of(wish.model, smallest), free, smallest))

    def _too_many(self, others: Sequence[Resident]) -> bool:
        return bool(self._limits.max_loaded) and _count(others) >= self._limits.max_loaded


def _count(others: Sequence[Resident]) -> int:
    """How many are in memory."""
    return sum(other.pid is not None for other in others)


def _least_recently_used(others: Sequence[Resident]) -> Resident | None:
    """Of those that are loaded; one that is at work only if all are."""
    loaded = [other for other in others if other.loaded is not None]
    return min(loaded, key=lambda other: (not other.is_idle, other.used_at), default=None)
