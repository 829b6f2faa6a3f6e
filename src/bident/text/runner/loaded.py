"""A model that a child has loaded, and the watch over that child."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timezone
from typing import Any

import orjson

from bident.errors import ServeError, invalid_arg
from bident.text.runner.exchange import Exchange
from bident.text.runner.limits import Limits
from bident.text.runner.plan import Plan
from bident.text.runner.process import Process
from bident.text.runner.wish import Wish

_KEPT_THREADS = 2
"""HTTP threads of the child that requests never get: one always hears whether it lives."""


class Loaded:
    """``active`` counts the requests that have one of its slots."""

    def __init__(self, process: Process, wish: Wish, plan: Plan, limits: Limits) -> None:
        self.process = process
        self.wish = wish
        self.plan = plan
        self.active = 0
        self.since = datetime.now(timezone.utc)
        self._threads = asyncio.Semaphore(plan.http_threads - _KEPT_THREADS)
        self._open: set[Exchange] = set()
        self._pulse = asyncio.create_task(self._watch(limits.pulse_seconds, limits.hang_seconds))

    @contextlib.asynccontextmanager
    async def exchange(self, path: str, payload: Mapping[str, Any]) -> AsyncIterator[Exchange]:
        """The answer to ``payload`` sent to ``path``; leaving the block ends what still goes on for it."""
        try:
            body = orjson.dumps(payload)
        except orjson.JSONEncodeError as error:
            raise invalid_arg(f"the request cannot be passed on to llama.cpp: {error}") from error
        async with self._threads:
            exchange = Exchange(self.process)
            self._open.add(exchange)
            try:
                await exchange.send(path, body)
                yield exchange
            finally:
                exchange.close()
                self._open.discard(exchange)

    async def stop(self) -> None:
        """End the child. Returns when what it used is given back."""
        self._pulse.cancel()
        await self.process.stop()

    async def _watch(self, pause: float, patience: float) -> None:
        """End the child when it is at work and does not even say that it lives: stopped, or stuck in the kernel.

        Whoever waits for it notices its end. An idle one is left alone: looking would keep its memory warm.
        """
        while not self.process.ended.is_set():
            await asyncio.sleep(pause)
            if self._open and not await self._lives(patience):
                self.process.kill(f"its process did not respond for {patience:g} seconds and was ended")

    async def _lives(self, patience: float) -> bool:
        exchange = Exchange(self.process)
        try:
            await asyncio.wait_for(exchange.send("/health", None), patience)
        except asyncio.TimeoutError:
            return False
        except ServeError:
            return True  # it says something, or has ended: that is noticed elsewhere
        finally:
            exchange.close()
        return True
