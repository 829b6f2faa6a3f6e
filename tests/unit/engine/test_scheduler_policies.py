"""Queue policies at work: priorities, timeouts, limits, and clients that have gone."""

from __future__ import annotations

import pytest

from bident.errors import Code, ServeError
from tests.unit.engine.engine_fakes import (
    BATCHING,
    THREAD,
    Echo,
    answer_of,
    answered,
    ask,
    busy,
    failures,
    infer,
    model_config,
    on_loop,
    servable_of,
    turns,
)

# Queue policies


@on_loop
async def test_urgent_requests_are_served_first() -> None:
    instance = Echo()
    text = "dynamic_batching { preferred_batch_size: [ 2 ] priority_levels: 3 default_priority_level: 2 }"
    servable = servable_of(model_config(text + THREAD, batch=2), instance)
    blocker = await busy(servable, instance)
    requests = []
    for value, priority in ((30, 3), (31, 3), (20, 0), (21, 2), (10, 1), (11, 1)):
        request = ask(value)
        request.priority = priority
        requests.append(request)
    infer(servable, *requests)

    instance.release()
    await answered(blocker, *requests)

    assert instance.firsts[1:] == [[10, 11], [20, 21], [30, 31]]


def with_policy(policy: str) -> str:
    return f"dynamic_batching {{ default_queue_policy {{ {policy} }} }} {THREAD}"


@on_loop
async def test_a_request_that_waits_too_long_is_rejected_while_the_instance_is_busy() -> None:
    instance = Echo()
    servable = servable_of(model_config(with_policy("default_timeout_microseconds: 1000")), instance)
    blocker = await busy(servable, instance)
    late = ask(1)

    infer(servable, late)
    await answered(late)

    assert late.error.code is Code.UNAVAILABLE
    assert "Request timeout expired" in late.error.message
    assert failures(servable) == {"REJECTED": 1}
    assert (servable.stats.fail.count, servable.scheduler.pending) == (1, 0)
    assert not blocker.is_answered  # the timeout is for the queue, never for what runs
    instance.release()
    await answered(blocker)
    assert blocker.tensors["Y"].tolist() == answer_of(0)
    assert instance.firsts == [[0]]


@on_loop
async def test_a_request_may_shorten_its_own_time_if_it_is_allowed_to() -> None:
    instance = Echo()
    text = with_policy("default_timeout_microseconds: 3600000000 allow_timeout_override: true")
    servable = servable_of(model_config(text), instance)
    blocker = await busy(servable, instance)
    hasty, patient = ask(1), ask(2)
    hasty.timeout_us = 1000

    infer(servable, hasty, patient)
    await answered(hasty)

    assert "Request timeout expired" in hasty.error.message
    instance.release()
    await answered(blocker, patient)
    assert instance.firsts == [[0], [2]]


@on_loop
async def test_delayed_requests_are_served_after_the_punctual_ones() -> None:
    instance = Echo()
    text = "timeout_action: DELAY default_timeout_microseconds: 3600000000 allow_timeout_override: true"
    servable = servable_of(model_config(with_policy(text), batch=1), instance)
    blocker = await busy(servable, instance)
    late, first, second = ask(1), ask(2), ask(3)
    late.timeout_us = 1
    infer(servable, late, first, second)

    await turns()
    instance.release()
    await answered(blocker, late, first, second)

    assert instance.firsts == [[0], [2], [3], [1]]
    assert failures(servable) == {}


@on_loop
async def test_a_full_queue_refuses_at_once() -> None:
    instance = Echo()
    servable = servable_of(model_config(with_policy("max_queue_size: 2")), instance)
    blocker = await busy(servable, instance)
    waiting = [ask(1), ask(2)]
    infer(servable, *waiting)

    with pytest.raises(ServeError, match="Exceeds maximum queue size") as caught:
        infer(servable, ask(3))

    assert caught.value.code is Code.UNAVAILABLE
    assert failures(servable) == {"REJECTED": 1}
    instance.release()
    await answered(blocker, *waiting)
    assert instance.firsts == [[0], [1, 2]]


@on_loop
async def test_the_delay_of_a_batch_never_ends_a_request() -> None:
    instance = Echo()
    servable = servable_of(model_config("dynamic_batching { max_queue_delay_microseconds: 1 }" + THREAD), instance)
    blocker = await busy(servable, instance)
    request = ask(1)
    infer(servable, request)

    await turns(50)
    assert blocker.answers == request.answers == []
    instance.release()
    await answered(blocker, request)

    assert request.tensors["Y"].tolist() == answer_of(1)


# Clients that have gone


@on_loop
async def test_a_request_whose_client_has_gone_never_runs() -> None:
    instance = Echo()
    servable = servable_of(model_config(BATCHING + THREAD), instance)
    blocker = await busy(servable, instance)
    gone, stays = ask(1), ask(2)
    infer(servable, gone, stays)

    gone.cancelled = True
    servable.scheduler.discard_cancelled()

    assert gone.error.code is Code.CANCELLED
    assert (servable.scheduler.pending, failures(servable)) == (1, {"CANCELED": 1})
    instance.release()
    await answered(blocker, stays)
    assert instance.firsts == [[0], [2]]
    assert len(gone.answers) == 1


@on_loop
async def test_a_request_that_runs_already_is_finished() -> None:
    instance = Echo()
    servable = servable_of(model_config(BATCHING + THREAD), instance)
    blocker = await busy(servable, instance)

    blocker.cancelled = True
    servable.scheduler.discard_cancelled()
    assert not blocker.is_answered
    instance.release()
    await answered(blocker)

    assert failures(servable) == {}
