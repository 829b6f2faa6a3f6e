"""The last steps before what has been loaded can take over: start it, warm it up, wait for others like it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from bident.engine.servable import Servable
from bident.engine.warmup import Sample

Gate = Callable[[], Awaitable[None]]
"""Waited for before what is loaded goes into service; what it raises ends the load."""


async def make_ready(
    servables: Collection[Servable],
    samples: Sequence[Sample],
    in_pool: Callable[..., Awaitable[Any]],
    gate: Gate | None,
) -> None:
    """Have all ``servables`` started, asked with ``samples`` and past the ``gate``, or close them all.

    ``in_pool`` runs a step on a thread. Raises ServeError.
    """
    await _start(servables)
    try:
        if samples:
            for servable in servables:
                await servable.warm_up(samples, in_pool)
        if gate is not None:
            await gate()
    except BaseException:
        await asyncio.gather(*(servable.close() for servable in servables))
        raise


async def _start(servables: Collection[Servable]) -> None:
    """Start all, or close all. Raises ServeError."""
    starting = [asyncio.ensure_future(servable.start()) for servable in servables]
    try:
        await asyncio.gather(*starting)
    except BaseException:
        for start in starting:
            start.cancel()
        outcomes = await asyncio.gather(*starting, return_exceptions=True)
        started = [servable for servable, outcome in zip(servables, outcomes, strict=True) if outcome is None]
        await asyncio.gather(*(servable.close() for servable in started))
        raise
