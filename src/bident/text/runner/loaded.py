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
from bident.text.runner.process import ENDLESS_TEMPLATE, TEMPLATE_SECONDS, Process
from bident.text.runner.wish import Wish

_KEPT_THREADS = 2
"""HTTP threads of the child that requests never get: one always hears whether it lives."""

CHAT = "/v1/chat/completions"
APPLY_TEMPLATE = "/apply-template"
_SUSPICIOUS_SECONDS = 2.0
"""A chat may well take longer to its first token: for its prompt, not for its template."""
_TEMPLATE_BYTES_PER_SECOND = 1 << 20
"""More time for large conversations. Any template is much faster than that."""


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
                await self._send(exchange, path, body)
                yield exchange
            finally:
                exchange.close()
                self._open.discard(exchange)

    async def stop(self) -> None:
        """End the child. Returns when what it used is given back."""
        self._pulse.cancel()
        await self.process.stop()

    async def _send(self, exchange: Exchange, path: str, body: bytes) -> None:
        """Returns when the answer's head is there; if its template seems not to end, that is found out meanwhile."""
        if path not in (CHAT, APPLY_TEMPLATE):
            await exchange.send(path, body)
            return
        sending = asyncio.ensure_future(exchange.send(path, body))
        try:
            done, _ = await asyncio.wait({sending}, timeout=_SUSPICIOUS_SECONDS)
            if not done and not await self._renders(body):
                self.process.kill(ENDLESS_TEMPLATE)
            await sending
        finally:
            sending.cancel()

    async def _renders(self, body: bytes) -> bool:
        """Whether the chat template comes to an end for ``body``: that takes milliseconds, and waits for no slot."""
        seconds = TEMPLATE_SECONDS + len(body) / _TEMPLATE_BYTES_PER_SECOND
        return await self._answers(APPLY_TEMPLATE, body, seconds)

    async def _watch(self, pause: float, patience: float) -> None:
        """End the child when it is at work and does not even say that it lives: stopped, or stuck in the kernel.

        Whoever waits for it notices its end. An idle one is left alone: looking would keep its memory warm.
        """
        while not self.process.ended.is_set():
            await asyncio.sleep(pause)
            if self._open and not await self._lives(patience):
                self.process.kill(f"its process did not respond for {patience:g} seconds and was ended")

    async def _lives(self, patience: float) -> bool:
        return await self._answers("/health", None, patience)

    async def _answers(self, path: str, body: bytes | None, seconds: float) -> bool:
        exchange = Exchange(self.process)
        try:
            await asyncio.wait_for(exchange.send(path, body), seconds)
        except asyncio.TimeoutError:
            return False
        except ServeError:
            return True  # it says something, or has ended: that is noticed elsewhere
        finally:
            exchange.close()
        return True
