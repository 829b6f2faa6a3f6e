"""Steps of loads run on threads; one that nobody waits for any more leaves nothing open."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from bident.engine import loading_threads
from bident.engine.loading_threads import LoadingThreads
from tests.unit.engine.engine_fakes import on_loop, until


def threads(count: int = 2) -> LoadingThreads:
    return LoadingThreads(asyncio.get_running_loop(), count)


def failing() -> None:
    raise ValueError("a broken file")


@on_loop
async def test_what_a_step_returns_or_raises_comes_back() -> None:
    pool = threads()
    assert await pool.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ValueError, match="a broken file"):
        await pool.run(failing)
    assert not pool.close()


@on_loop
async def test_a_model_that_nobody_waits_for_any_more_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading_threads, "LoadedModel", SimpleNamespace)
    pool, begun, go_on, closed = threads(), threading.Event(), threading.Event(), threading.Event()

    def load() -> Any:
        begun.set()
        go_on.wait(10)
        return SimpleNamespace(close=closed.set)

    loading = asyncio.ensure_future(pool.run(load))
    await until(begun.is_set, "the load")
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert pool.close(), "the thread is still at work"
    go_on.set()
    await until(closed.is_set, "the end of the model")
