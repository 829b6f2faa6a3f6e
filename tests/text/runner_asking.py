"""What the tests of the runner do over and over."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import psutil

from bident.text.runner.lease import Lease
from bident.text.runner.residency import Residency, Running

LONG = 100_000
DEADLINE_SECONDS = 30.0


async def generate(lease: Lease, tokens: int = 4, prompt: str = "One two three") -> str:
    """A short text. ``ignore_eos`` so that it has as many tokens as asked for."""
    payload = {"prompt": prompt, "n_predict": tokens, "ignore_eos": True, "temperature": 0}
    return "".join([event["content"] async for event in lease.stream("/completion", payload)])


async def read_on(stream: AsyncIterator[Any]) -> None:
    """Read ``stream`` to its end."""
    async for _ in stream:
        pass


async def until(holds: Callable[[], Any], seconds: float = DEADLINE_SECONDS) -> None:
    """Return when ``holds`` is true; fail if it is not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


def the_only(residency: Residency) -> Running:
    """What runs, when one model does."""
    [running] = residency.running()
    return running


def children() -> set[int]:
    """The processes that run models for this one."""
    found = set()
    for process in psutil.Process().children():
        try:
            if "bident.text.runner.child" in process.cmdline():
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


def end_children() -> set[int]:
    """End what :func:`children` finds, so that one test's failure is not the next one's; returns what that was."""
    left = children()
    for pid in left:
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).kill()
    return left
