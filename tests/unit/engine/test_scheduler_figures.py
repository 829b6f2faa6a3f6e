"""What is written down, where a model runs, and how it ends."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from bident.engine.stats import FailureReason
from tests.unit.engine.engine_fakes import (
    BATCHING,
    INLINE,
    THREAD,
    Echo,
    answer_of,
    answered,
    ask,
    busy,
    infer,
    model_config,
    on_loop,
    servable_of,
    turns,
    until,
)

# Figures


@pytest.mark.parametrize("lane", [INLINE, THREAD])
@on_loop
async def test_the_figures_of_a_request_add_up(lane: str) -> None:
    instance = Echo()
    servable = servable_of(model_config(BATCHING + lane), instance)
    sizes = (1, 3, 2)
    before_queue_ns = 5_000_000
    for _ in range(4):
        requests = [ask(1, rows=rows) for rows in sizes]
        for request in requests:
            request.received_ns -= before_queue_ns  # what a door took to read it
        infer(servable, *requests)
        await answered(*requests)

    stats = servable.stats
    assert stats.success.count == stats.queue.count == stats.compute_infer.count == 12
    assert stats.inferences == 4 * sum(sizes) == sum(rows * size.executions for rows, size in stats.batches.items())
    assert stats.executions == len(instance.batches) == sum(size.executions for size in stats.batches.values())
    parts = [stats.queue, stats.compute_input, stats.compute_infer, stats.compute_output]
    assert all(part.ns >= 0 for part in parts)
    assert sum(part.ns for part in parts) <= stats.success.ns - 12 * before_queue_ns
    assert stats.fail.count == 0


@on_loop
async def test_time_in_the_queue_is_queue_time_and_time_in_the_model_is_infer_time() -> None:
    instance = Echo()
    servable = servable_of(model_config(THREAD), instance)
    blocker = await busy(servable, instance)
    waiting = ask(1)
    infer(servable, waiting)
    start_ns = waiting.queued_ns
    await until(lambda: asyncio.get_running_loop().time() * 1e9 - start_ns > 5_000_000, "five milliseconds")

    instance.release()
    await answered(blocker, waiting)

    stats = servable.stats
    assert stats.compute_infer.ns >= 5_000_000  # the blocker was held that long
    assert stats.queue.ns >= 5_000_000  # and the other waited for it
    assert stats.compute_input.ns + stats.compute_output.ns < stats.success.ns


@on_loop
async def test_a_failed_request_adds_its_time_to_failures_and_its_run_to_executions() -> None:
    def fail(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise ValueError("no")

    servable = servable_of(model_config(BATCHING + INLINE), Echo(fail))
    request = ask(1)
    request.received_ns -= 7_000_000
    infer(servable, request)
    await answered(request)

    stats = servable.stats
    assert stats.fail.count == 1
    assert stats.fail.ns >= 7_000_000
    assert (stats.success.ns, stats.queue.ns, stats.compute_infer.ns, stats.inferences) == (0, 0, 0, 0)
    assert (stats.executions, list(stats.batches)) == (1, [1])


# Where it runs, and how it ends


@on_loop
async def test_a_model_measured_to_be_quick_moves_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bident.engine.lane.INLINE_LIMIT_NS", 10**12)
    monkeypatch.setattr("bident.engine.lane._UNKNOWN_NS", 10**13, raising=False)
    threads: list[threading.Thread] = []

    def note(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        threads.append(threading.current_thread())
        return {"Y": inputs["X"]}

    servable = servable_of(model_config(BATCHING), Echo(note))
    for _ in range(2):
        request = ask(1)
        infer(servable, request)
        await answered(request)

    assert threads[0] is not threading.current_thread()
    assert threads[1] is threading.current_thread()


@on_loop
async def test_a_model_measured_to_be_slow_stays_on_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bident.engine.lane.INLINE_LIMIT_NS", 0)
    threads: set[threading.Thread] = set()

    def note(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        threads.add(threading.current_thread())
        return {"Y": inputs["X"]}

    servable = servable_of(model_config(BATCHING), Echo(note))
    for _ in range(3):
        request = ask(1)
        infer(servable, request)
        await answered(request)

    assert len(threads) == 1
    assert threading.current_thread() not in threads


@on_loop
async def test_what_is_queued_and_running_is_answered_before_the_instances_are_closed() -> None:
    instance = Echo()
    servable = servable_of(model_config(THREAD, name="closing"), instance)
    blocker = await busy(servable, instance)
    waiting = [ask(1), ask(2)]
    infer(servable, *waiting)
    closed: list[bool] = []

    servable.retire(lambda: closed.append(True))
    await turns()
    assert not closed
    assert not instance.closed
    instance.release()
    await until(lambda: closed, "the end")

    assert [request.tensors["Y"].tolist() for request in (blocker, *waiting)] == [
        answer_of(value) for value in (0, 1, 2)
    ]
    assert (instance.closed, closed) == (1, [True])
    assert not [thread for thread in threading.enumerate() if "closing" in thread.name]


@on_loop
async def test_an_idle_model_is_closed_at_once_and_a_close_that_fails_ends_it_too() -> None:
    class Stubborn(Echo):
        def close(self) -> None:
            super().close()
            raise OSError("will not")

    instances = [Stubborn(), Stubborn()]
    servable = servable_of(model_config(THREAD), *instances)
    closed: list[bool] = []

    servable.retire(lambda: closed.append(True))
    await until(lambda: closed, "the end")

    assert [instance.closed for instance in instances] == [1, 1]


@on_loop
async def test_cancelled_requests_do_not_keep_a_retired_model() -> None:
    instance = Echo()
    servable = servable_of(model_config(BATCHING + THREAD), instance)
    blocker = await busy(servable, instance)
    gone = ask(1)
    infer(servable, gone)
    closed: list[bool] = []
    servable.retire(lambda: closed.append(True))

    gone.cancelled = True
    servable.scheduler.discard_cancelled()
    instance.release()
    await until(lambda: closed, "the end")

    assert blocker.tensors["Y"].tolist() == answer_of(0)
    assert instance.firsts == [[0]]


def test_reasons_have_tritons_words() -> None:
    assert [reason.value for reason in FailureReason] == ["REJECTED", "CANCELED", "BACKEND", "OTHER"]
