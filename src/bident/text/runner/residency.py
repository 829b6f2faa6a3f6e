"""Who is in memory: models are loaded when they are asked for, and leave when they are not, or others need the room."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bident.errors import Code, ServeError
from bident.text.model import TextModel
from bident.text.runner import process
from bident.text.runner.lease import Lease
from bident.text.runner.limits import Limits
from bident.text.runner.loaded import Loaded
from bident.text.runner.machine import memory_of, require_llama_cpp
from bident.text.runner.resident import Resident, Turnover
from bident.text.runner.room import Room
from bident.text.runner.wish import Wish, wish_of

logger = logging.getLogger("bident.text")

_Key = tuple[Path, Path | None, tuple[Path, ...]]
"""Weights, projector and adapters: models that differ only in template or parameters share a child."""


@dataclass(frozen=True)
class Running:
    """A loaded model."""

    model: TextModel
    size: int
    """Bytes of memory that its process uses now."""
    expires_at: datetime | None
    """When it is unloaded if nobody asks for it again; None for never."""
    context_length: int
    since: datetime
    pid: int
    active: int
    """Requests that are being answered."""
    slots: int = 1
    """How many it answers at the same time."""


class Residency:
    """The models in memory. Everything is to be called on one loop; ``close`` at the end."""

    def __init__(self, limits: Limits | None = None, room: Room | None = None) -> None:
        self._limits = limits or Limits()
        self._room = room or Room(self._limits)
        self._residents: dict[_Key, Resident] = {}
        self.turnover: dict[str, Turnover] = {}
        """How often each model has come and gone, by name."""
        self._turn = asyncio.Lock()
        """One model's weights are read at a time: otherwise two would count on the same memory. In their order."""
        self._closed = False

    def lease(
        self, model: TextModel, options: Mapping[str, Any], keep_alive: float | None = None
    ) -> AbstractAsyncContextManager[Lease]:
        """A slot of ``model``, loaded as ``options`` and its parameters want it.

        ``keep_alive`` (seconds) is how long it stays loaded after its last request; None leaves that as it is.
        Entering the block waits for the model and for the slot, and raises INVALID_ARG for options of a wrong type,
        NOT_FOUND when its files are gone, UNSUPPORTED when llama.cpp cannot run here, UNAVAILABLE when too many
        wait, when memory does not suffice or the model keeps crashing, INTERNAL when it cannot be loaded.
        """
        return self._lease(model, options, keep_alive)

    @contextlib.asynccontextmanager
    async def _lease(
        self, model: TextModel, options: Mapping[str, Any], keep_alive: float | None
    ) -> AsyncIterator[Lease]:
        require_llama_cpp()
        wish = wish_of(model, options, self._limits)
        begun = time.monotonic_ns()
        resident = self._resident(model)
        loaded = await resident.enter(wish, keep_alive)
        lease = Lease(loaded, time.monotonic_ns() - begun)
        try:
            yield lease
        finally:
            await lease.close()
            resident.leave(loaded)

    def running(self) -> list[Running]:
        """The loaded models; the one that stays longest first, as Ollama lists them."""
        found = [
            Running(
                model=loaded.wish.model,
                size=memory_of(loaded.process.pid)[0],
                expires_at=resident.expires_at,
                context_length=loaded.plan.context_length,
                since=loaded.since,
                pid=loaded.process.pid,
                active=loaded.active,
                slots=loaded.plan.slots,
            )
            for resident in self._residents.values()
            if (loaded := resident.loaded) is not None
        ]
        endless = float("inf")
        return sorted(found, key=lambda each: -(each.expires_at.timestamp() if each.expires_at else endless))

    def waiting(self) -> Counter[str]:
        """Requests that wait for a slot or for their model to be loaded, by model."""
        counts: Counter[str] = Counter()
        for resident in self._residents.values():
            counts[resident.label] += resident.waiting
        return counts

    async def unload(self, model: TextModel) -> None:
        """Unload ``model``: now if nobody uses it, otherwise as soon as nobody does; that is not waited for.

        A model that kept crashing may be tried again after this.
        """
        resident = self._residents.get(_key(model))
        if resident is not None:
            await resident.unload()

    async def close(self) -> None:
        """Unload everything. Requests that are in line or being answered get an error."""
        self._closed = True
        await asyncio.gather(*(resident.close() for resident in self._residents.values()))
        self._residents.clear()

    # ------------------------------------------------------------------ loading, called by a resident

    def _resident(self, model: TextModel) -> Resident:
        if self._closed:
            raise ServeError(Code.UNAVAILABLE, "the server is shutting down")
        key = _key(model)
        if key not in self._residents:
            self._residents = {key: each for key, each in self._residents.items() if not each.is_forgotten}
            turnover = self.turnover.setdefault(model.name.short, Turnover())
            self._residents[key] = Resident(model.name.short, self._limits, self._load, turnover)
        return self._residents[key]

    async def _load(self, resident: Resident, wish: Wish) -> Loaded:
        """A child with what ``wish`` is for, in place of the resident's present one."""
        async with self._turn:
            others = [other for other in self._residents.values() if other is not resident]
            plan = await self._room.make(resident, others, wish)
            await resident.give_up()
            begun = time.monotonic()
            child = await process.start(plan, resident.label, self._limits.load_seconds)
            resident.turnover.loads += 1
            resident.turnover.load_seconds += time.monotonic() - begun
            resident.arriving = child
        # Its memory can be measured now: others need not wait for a template that may run for seconds.
        await child.listening()
        logger.info(
            "loaded model '%s' in %.2f s: process %d, %d slots of %d tokens, %d threads",
            *(resident.label, time.monotonic() - begun, child.pid),
            *(plan.slots, plan.context_length, plan.threads),
        )
        return Loaded(child, wish, plan, self._limits)


def _key(model: TextModel) -> _Key:
    return model.weights, model.projector, tuple(model.adapters)
