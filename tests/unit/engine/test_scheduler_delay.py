"""The declared delay: an upper bound, spent only while more requests may come."""

from __future__ import annotations

import pytest

from bident.engine.servable import Servable
from tests.unit.engine.engine_fakes import (
    INLINE,
    THREAD,
    Echo,
    answered,
    ask,
    busy,
    infer,
    model_config,
    on_loop,
    servable_of,
    turns,
)

LONG_DELAY = "dynamic_batching { max_queue_delay_microseconds: 3600000000 }"  # an hour: whoever waits it out, fails


@pytest.fixture
def long_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Company is expected for as long as a slow test machine may take, whatever it makes of the times of batches."""
    monkeypatch.setattr("bident.engine.scheduler._COMPANY_WINDOW_NS", 10**12)
    monkeypatch.setattr("bident.engine.lane._WORTH_WAITING", float("inf"))


async def seen_together(servable: Servable, instance: Echo, count: int) -> None:
    """Let ``count`` requests be seen waiting at once, and be answered."""
    blocker = await busy(servable, instance)
    others = [ask(0) for _ in range(count)]
    infer(servable, *others)
    await turns()
    instance.release()
    await answered(blocker, *others)
    assert servable.scheduler.is_idle
    instance.batches.clear()


@on_loop
async def test_a_lone_client_never_waits_for_company() -> None:
    instance = Echo()
    servable = servable_of(model_config(LONG_DELAY + THREAD), instance)

    for value in range(3):
        request = ask(value)
        infer(servable, request)
        await answered(request)

    assert instance.rows == [1, 1, 1]


@pytest.mark.usefixtures("long_memory")
@on_loop
async def test_a_batch_waits_for_the_company_that_was_seen_before() -> None:
    instance = Echo()
    servable = servable_of(model_config(LONG_DELAY + THREAD), instance)
    await seen_together(servable, instance, 4)

    requests = [ask(value) for value in range(1, 5)]
    for request in requests[:3]:
        infer(servable, request)
        await turns()
        assert instance.batches == []
    infer(servable, requests[3])
    await answered(*requests)

    assert instance.firsts == [[1, 2, 3, 4]]


@pytest.mark.usefixtures("long_memory")
@on_loop
async def test_the_wait_for_company_ends_with_the_delay() -> None:
    instance = Echo()
    servable = servable_of(model_config("dynamic_batching { max_queue_delay_microseconds: 20000 }" + THREAD), instance)
    await seen_together(servable, instance, 4)

    request = ask(1)
    infer(servable, request)
    await answered(request)

    assert instance.firsts == [[1]]
    assert servable.stats.batches[1].executions == 2  # the one that kept the instance busy, and this one
    waited_ns = servable.stats.queue.ns
    assert waited_ns >= 20_000_000


@pytest.mark.usefixtures("long_memory")
@pytest.mark.parametrize("rows", [8, 3])
@on_loop
async def test_a_batch_that_cannot_grow_does_not_wait(rows: int) -> None:
    instance = Echo()
    text = "dynamic_batching { preferred_batch_size: [ 3, 8 ] max_queue_delay_microseconds: 3600000000 }"
    servable = servable_of(model_config(text + THREAD), instance)
    await seen_together(servable, instance, 3)

    request = ask(1, rows=rows)
    infer(servable, request)
    await answered(request)

    assert instance.rows == [rows]


@pytest.mark.usefixtures("long_memory")
@on_loop
async def test_a_quick_execution_is_never_waited_for() -> None:
    quick = Echo()
    servable = servable_of(model_config(LONG_DELAY + INLINE), quick)
    infer(servable, *[ask(0) for _ in range(4)])
    await turns()
    request = ask(1)

    infer(servable, request)
    await answered(request)

    assert quick.firsts[-1] == [1]


@pytest.mark.usefixtures("long_memory")
@on_loop
async def test_nobody_waits_once_a_single_client_is_left() -> None:
    instance = Echo()
    servable = servable_of(model_config(LONG_DELAY + THREAD), instance, clients=1)
    await seen_together(servable, instance, 4)

    request = ask(1)
    infer(servable, request)
    await answered(request)

    assert instance.firsts == [[1]]


@on_loop
async def test_company_is_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = Echo()
    servable = servable_of(model_config(LONG_DELAY + THREAD), instance)
    await seen_together(servable, instance, 4)
    monkeypatch.setattr("bident.engine.scheduler._COMPANY_WINDOW_NS", 0, raising=False)

    request = ask(1)
    infer(servable, request)
    await answered(request)

    assert instance.firsts == [[1]]
