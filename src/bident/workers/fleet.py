"""The engine of a worker: what changes its models changes those of all, and its figures are those of all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from bident.engine.engine import Engine
from bident.engine.readying import Gate
from bident.engine.stats import Figures, ModelStats
from bident.errors import Code, ServeError
from bident.workers import sums
from bident.workers.journal import MODELS, Change
from bident.workers.link import Link

_READY = "READY"

Keyed = dict[tuple[str, int], ModelStats]


class FleetEngine(Engine):
    """One of several engines that serve the same models on the same ports."""

    link: Link
    """To the supervisor; set before anything is asked."""
    page: Callable[[], Awaitable[str]]
    """This worker's own page of metrics; set before anything is asked."""

    # What clients change

    async def load(
        self,
        name: str,
        config: str | None = None,
        files: dict[str, bytes] | None = None,
        *,
        gate: Gate | None = None,
    ) -> None:
        """As one engine's, in all workers: they serve the new model from the same moment on, or none of them does."""
        self._check_control(name)
        await self._agree(Change(MODELS, "load", (name, config, files)))

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        """As one engine's, in all workers."""
        self._check_control(name)
        await self._agree(Change(MODELS, "unload", (name, dependents)))

    async def apply(self, part: str, verb: str, *arguments: Any) -> Any:
        """As one engine's, in all workers."""
        return await self._agree(Change(part, verb, arguments))

    async def make(self, change: Change, gate: Gate | None = None) -> Any:
        """Make ``change`` in this worker. A load waits at the ``gate`` before it switches."""
        if change.part != MODELS:
            return await super().apply(change.part, change.verb, *change.arguments)
        if change.verb == "load":
            return await super().load(*change.arguments, gate=gate)
        name, dependents = change.arguments
        return await super().unload(name, dependents=dependents)

    # What all of them say

    async def check_ready(self) -> bool:
        """Whether every worker is."""
        return await super().check_ready() and all(said for _, said in await self._gather("ready"))

    async def check_model_ready(self, name: str, version: str) -> bool:
        """Whether the model is, in every worker."""
        here = await super().check_model_ready(name, version)
        return here and all(said for _, said in await self._gather("model_ready", name, version))

    async def index(self, *, ready: bool) -> list[dict[str, str]]:
        """Of each version the state that is worst, with the worker that it is in."""
        rows = await super().index(ready=False)
        others = [(number, _by_version(said)) for number, said in await self._gather("index") if said is not None]
        joined = [_worst(row, others) for row in rows]
        return [row for row in joined if row.get("state") == _READY] if ready else joined

    async def figures(self, name: str, version: str) -> list[Figures]:
        """What all workers have done together; of models that this one serves."""
        asked = await super().figures(name, version)
        summed: Keyed = self._own_figures()
        for _, said in await self._gather("figures", own=dict(summed)):
            if said is not None:
                summed = {key: sums.added(mine, said[key]) if key in said else mine for key, mine in summed.items()}
        return [one._replace(stats=summed[one.name, one.version]) for one in asked if (one.name, one.version) in summed]

    async def summed_page(self, own: str) -> str:
        """The page of metrics of all workers, where ``own`` is this one's."""
        pages = [own, *(page for _, page in await self._gather("metrics", own=own) if page is not None)]
        return await asyncio.get_running_loop().run_in_executor(None, sums.add_pages, pages)

    # What the supervisor asks

    async def answer(self, verb: str, arguments: tuple[Any, ...]) -> Any:
        """Answer the supervisor."""
        if verb == "change":
            number, change = arguments
            return await self.make(change, partial(self.link.ask, "at_gate", number) if number else None)
        if verb == "figures":
            return self._own_figures()
        asked: dict[str, Callable[..., Awaitable[Any]]] = {
            "metrics": self.page,
            "ready": super().check_ready,
            "model_ready": super().check_model_ready,
            "index": partial(super().index, ready=False),
        }
        return await asked[verb](*arguments)

    def _own_figures(self) -> Keyed:
        """What this worker's versions have counted; what only the metrics page shows stays here."""
        return {
            (one.name, one.version): replace(one.stats, summaries=None, first_response=None)
            for one in self.lifecycle.servables()
        }

    async def _agree(self, change: Change) -> Any:
        try:
            return await self.link.ask("change", change)
        except ConnectionError:
            raise ServeError(Code.UNAVAILABLE, "Server exiting") from None

    async def _gather(self, kind: str, *arguments: Any, own: Any = None) -> list[tuple[int, Any]]:
        try:
            said: list[tuple[int, Any]] = await self.link.ask("gather", kind, own, *arguments)
        except ConnectionError:
            return []  # the supervisor has gone, and so will this worker
        return said


def _by_version(rows: list[dict[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
    return {(row["name"], row.get("version", "")): row for row in rows}


def _worst(row: dict[str, str], others: list[tuple[int, dict[tuple[str, str], dict[str, str]]]]) -> dict[str, str]:
    """``row``, or another worker's where the version is not as ready there."""
    if row.get("state") != _READY:
        return row
    for number, rows in others:
        theirs = rows.get((row["name"], row.get("version", "")), row)
        if theirs.get("state") != _READY:
            return {**theirs, "reason": f"worker {number}: {theirs.get('reason') or 'no reason is known'}"}
    return row
