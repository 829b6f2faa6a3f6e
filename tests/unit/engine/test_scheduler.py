"""One model's queue at work: who runs with whom, when, and what is written down."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from bident.engine.servable import Servable
from bident.engine.stats import FailureReason
from bident.errors import Code, ServeError
from tests.unit.engine.engine_fakes import (
    BATCHING,
    INLINE,
    THREAD,
    Asked,
    Echo,
    answer_of,
    answered,
    ask,
    model_config,
    on_loop,
    servable_of,
    tensor,
    turns,
    until,
)

VARIABLE = """
input [ { name: "X", data_type: TYPE_FP32, dims: [ -1 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ -1 ] } ]
"""


def infer(servable: Servable, *requests: Asked) -> None:
    for request in requests:
        servable.infer(request)


async def running(instance: Echo, count: int = 1) -> None:
    await until(lambda: instance.running == count, "an execution")


async def busy(servable: Servable, instance: Echo) -> Asked:
    """Keep the only ``instance`` of ``servable`` busy until it is released; returns the request that does."""
    instance.hold()
    blocker = ask(0)
    infer(servable, blocker)
    await running(instance)
    return blocker


def failures(servable: Servable) -> dict[str, int]:
    return {reason.value: count for reason, count in servable.stats.failures.items() if count}


# Batches


@on_loop
async def test_requests_of_one_tick_become_one_batch_and_each_gets_its_own_rows() -> None:
    instance = Echo()
    servable = servable_of(model_config(BATCHING + INLINE), instance)
    requests = [ask(1), ask(2, rows=3), ask(3, rows=2)]

    infer(servable, *requests)
    assert instance.batches == []
    await answered(*requests)

    assert instance.firsts == [[1, 2, 2, 2, 3, 3]]
    assert [request.tensors["Y"].tolist() for request in requests] == [answer_of(1), answer_of(2, 3), answer_of(3, 2)]
    assert {request.response.model_version for request in requests} == {"1"}


@on_loop
async def test_requests_pile_up_while_the_instance_is_busy_and_become_the_next_batch() -> None:
    instance = Echo()
    servable = servable_of(model_config(BATCHING + THREAD), instance)
    blocker = await busy(servable, instance)
    requests = []
    for value in range(1, 6):
        requests.append(ask(value))
        infer(servable, requests[-1])
        await turns(2)

    assert servable.scheduler.pending == 5
    instance.release()
    await answered(blocker, *requests)

    assert instance.firsts == [[0], [1, 2, 3, 4, 5]]
    assert servable.scheduler.pending == 0


@on_loop
async def test_three_requests_of_five_rows_are_three_calls() -> None:
    instance = Echo()
    servable = servable_of(model_config(BATCHING + INLINE), instance)
    requests = [ask(value, rows=5) for value in (1, 2, 3)]

    infer(servable, *requests)
    await answered(*requests)

    assert instance.firsts == [[1] * 5, [2] * 5, [3] * 5]


@on_loop
async def test_requests_of_unlike_shapes_are_answered_in_turn_and_none_starves() -> None:
    instance = Echo()
    servable = servable_of(model_config(BATCHING + THREAD, io=VARIABLE), instance)
    instance.hold()
    blocker = Asked(tensor("X", [0], (1, 1)))
    infer(servable, blocker)
    await running(instance)
    sizes = (3, 3, 5, 5, 3)
    requests = [Asked(tensor("X", [index] * size, (1, size))) for index, size in enumerate(sizes)]
    infer(servable, *requests)
    more = [Asked(tensor("X", [9] * 3, (1, 3))) for _ in range(8)]
    infer(servable, *more)

    instance.release()
    await answered(*requests, *more)

    assert instance.firsts[1:] == [[0, 1], [2, 3], [4] + [9] * 7, [9]]
    for index, (size, request) in enumerate(zip(sizes, requests, strict=True)):
        assert request.tensors["Y"].tolist() == [[index] * size]


@on_loop
async def test_empty_tensors_are_batched_like_others() -> None:
    instance = Echo()
    servable = servable_of(model_config(BATCHING + INLINE, io=VARIABLE), instance)
    requests = [Asked(tensor("X", [], (rows, 0))) for rows in (1, 2)]

    infer(servable, *requests)
    await answered(*requests)

    assert [batch["X"].shape for batch in instance.batches] == [(3, 0)]
    assert [request.tensors["Y"].shape for request in requests] == [(1, 0), (2, 0)]


@on_loop
async def test_requests_share_a_batch_only_if_they_leave_out_the_same_optional_inputs() -> None:
    io = """
    input [ { name: "X", data_type: TYPE_FP32, dims: [ 1 ] },
            { name: "Z", data_type: TYPE_FP32, dims: [ 1 ], optional: true } ]
    output [ { name: "Y", data_type: TYPE_FP32, dims: [ 1 ] } ]
    """
    instance = Echo(lambda inputs: {"Y": inputs["X"] + inputs.get("Z", np.float32(100))})
    servable = servable_of(model_config(BATCHING + INLINE, io=io), instance)
    with_z = [Asked(tensor("X", [x], (1, 1)), tensor("Z", [1], (1, 1))) for x in (1, 2)]
    without = [Asked(tensor("X", [x], (1, 1))) for x in (3, 4)]

    infer(servable, *with_z, *without)
    await answered(*with_z, *without)

    assert instance.firsts == [[1, 2], [3, 4]]
    assert [request.tensors["Y"].item() for request in (*with_z, *without)] == [2, 3, 103, 104]


@pytest.mark.parametrize("batch", [8, 0])
@on_loop
async def test_models_without_a_batcher_run_each_request_alone(batch: int) -> None:
    instance = Echo()
    servable = servable_of(model_config(INLINE, batch=batch), instance)
    lead = (1,) if batch else ()
    requests = [Asked(tensor("X", [value, value], (*lead, 2))) for value in (1, 2, 3)]

    infer(servable, *requests)
    await answered(*requests)

    assert [batch["X"].shape for batch in instance.batches] == [(*lead, 2)] * 3
    assert [request.tensors["Y"].tolist() for request in requests] == [
        [[value, value]] if batch else [value, value] for value in (1, 2, 3)
    ]
    assert (servable.stats.inferences, servable.stats.executions) == (3, 3)


@on_loop
async def test_a_long_queue_of_quick_executions_lets_the_loop_do_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bident.engine.scheduler._TICK_BUDGET_NS", 0, raising=False)
    instance = Echo()
    servable = servable_of(model_config(INLINE), instance)
    requests = [ask(value) for value in range(5)]
    executed_before_others: list[int] = []

    infer(servable, *requests)
    asyncio.get_running_loop().call_soon(lambda: executed_before_others.append(len(instance.batches)))
    await answered(*requests)

    assert executed_before_others[0] < 5


@on_loop
async def test_a_lone_client_of_a_quick_model_has_its_answer_at_once() -> None:
    instance = Echo()
    servable = servable_of(model_config(BATCHING + INLINE), instance, clients=1)
    request = ask(1)

    infer(servable, request)
    await answered(request)

    assert request.tensors["Y"].tolist() == answer_of(1)
    assert (servable.stats.success.count, servable.scheduler.is_idle) == (1, True)


@on_loop
async def test_instances_work_side_by_side() -> None:
    instances = [Echo(), Echo()]
    servable = servable_of(model_config(THREAD), *instances)
    for instance in instances:
        instance.hold()
    requests = [ask(1), ask(2), ask(3)]

    infer(servable, *requests)
    await until(lambda: all(instance.running for instance in instances), "both instances at work")
    assert servable.scheduler.pending == 1
    for instance in instances:
        instance.release()
    await answered(*requests)

    assert sum(len(instance.batches) for instance in instances) == 3


# The declared delay

LONG_DELAY = "dynamic_batching { max_queue_delay_microseconds: 3600000000 }"  # an hour: whoever waits it out, fails


@pytest.fixture
def long_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Company is expected for as long as a slow test machine may take."""
    monkeypatch.setattr("bident.engine.scheduler._COMPANY_WINDOW_NS", 10**12, raising=False)


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


# Order of answers

ORDERED = "dynamic_batching { preserve_ordering: true } "


@on_loop
async def test_answers_keep_the_order_of_requests_when_they_must() -> None:
    slow, fast = Echo(), Echo()
    servable = servable_of(model_config(ORDERED + THREAD, batch=1), slow, fast)
    slow.hold()
    fast.hold()
    requests = [ask(value) for value in range(6)]
    order: list[float] = []
    for request in requests:
        request.reply = lambda response, request=request: (  # type: ignore[misc]
            order.append(request.inputs["X"].data[0]),
            request.answers.append(response),
        )
    infer(servable, *requests)
    await until(lambda: slow.running and fast.running, "both instances at work")
    first, other = (slow, fast) if slow.firsts == [[0]] else (fast, slow)

    other.release()
    await until(lambda: other.finished == 5, "the others")
    await turns()
    assert order == []
    assert not servable.scheduler.is_idle
    first.release()
    await answered(*requests)

    assert order == [0, 1, 2, 3, 4, 5]
    assert [request.tensors["Y"].tolist() for request in requests] == [answer_of(value) for value in range(6)]


@on_loop
async def test_answers_come_as_they_are_ready_when_order_does_not_matter() -> None:
    instances = [Echo(), Echo()]
    servable = servable_of(model_config(THREAD), *instances)
    for instance in instances:
        instance.hold()
    requests = [ask(0), ask(1)]
    infer(servable, *requests)
    await until(lambda: all(instance.running for instance in instances), "both instances at work")
    second = next(instance for instance in instances if instance.firsts == [[1]])

    second.release()
    await answered(requests[1])

    assert not requests[0].is_answered
    for instance in instances:
        instance.release()
    await answered(requests[0])


@on_loop
async def test_a_failure_keeps_its_place_in_the_order() -> None:
    def fail_on_zero(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if inputs["X"][0, 0] == 0:
            raise ValueError("zero")
        return {"Y": inputs["X"]}

    instances = [Echo(fail_on_zero), Echo(fail_on_zero)]
    servable = servable_of(model_config(ORDERED + THREAD, batch=1), *instances)
    for instance in instances:
        instance.hold()
    requests = [ask(0), ask(1)]
    infer(servable, *requests)
    await until(lambda: all(instance.running for instance in instances), "both instances at work")
    first = next(instance for instance in instances if instance.firsts == [[0]])

    for instance in instances:
        if instance is not first:
            instance.release()
    await turns()
    assert not requests[1].is_answered
    first.release()
    await answered(*requests)

    assert requests[0].error.code is Code.INTERNAL
    assert requests[1].tensors["Y"].tolist() == answer_of(1)


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


# Failures


@pytest.mark.parametrize("lane", [INLINE, THREAD])
@on_loop
async def test_a_number_out_of_range_fails_only_its_own_request(lane: str) -> None:
    instance = Echo()
    servable = servable_of(model_config(BATCHING + lane), instance)
    bad = Asked(tensor("X", [1e39, 0], (1, 2)))
    good = [ask(1, rows=2), ask(2), ask(3)]

    infer(servable, good[0], bad, good[1], good[2])
    await answered(bad, *good)

    assert bad.error.code is Code.INVALID_ARG
    assert "input 'X' is out of range for FP32" in bad.error.message
    assert [request.tensors["Y"].tolist() for request in good] == [answer_of(1, 2), answer_of(2), answer_of(3)]
    assert instance.firsts == [[1, 1, 2, 3]]
    assert (servable.stats.success.count, servable.stats.inferences, servable.stats.executions) == (3, 4, 1)
    assert list(servable.stats.batches) == [4]
    assert failures(servable) == {"OTHER": 1}


@on_loop
async def test_a_batch_of_nothing_but_numbers_out_of_range_never_reaches_the_model() -> None:
    instance = Echo()
    servable = servable_of(model_config(BATCHING + INLINE), instance)
    requests = [Asked(tensor("X", [-1e39, 0], (1, 2))) for _ in range(2)]

    infer(servable, *requests)
    await answered(*requests)

    assert {request.error.code for request in requests} == {Code.INVALID_ARG}
    assert instance.batches == []
    assert (servable.stats.executions, servable.stats.success.count) == (0, 0)


@pytest.mark.parametrize("lane", [INLINE, THREAD])
@on_loop
async def test_a_model_that_raises_fails_its_batch_and_serves_the_next(lane: str) -> None:
    def fail_on_zero(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if (inputs["X"] == 0).any():
            raise ZeroDivisionError("no zeros \u20ac\nsecond line")
        return {"Y": inputs["X"]}

    servable = servable_of(model_config(BATCHING + lane), Echo(fail_on_zero))
    failing, after = [ask(0), ask(1)], ask(2)
    infer(servable, *failing)
    await answered(*failing)

    infer(servable, after)
    await answered(after)

    for request in failing:
        assert request.error.code is Code.INTERNAL
        assert request.error.message == "model 'm' failed to execute: ZeroDivisionError: no zeros \u20ac"
    assert after.tensors["Y"].tolist() == answer_of(2)
    assert failures(servable) == {"BACKEND": 2}
    assert (servable.stats.success.count, servable.stats.executions, servable.stats.inferences) == (1, 1, 1)


@on_loop
async def test_an_error_that_the_backend_meant_for_the_client_reaches_it_unchanged() -> None:
    meant = ServeError(Code.INVALID_ARG, "element 3 is not UTF-8")

    def refuse(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise meant

    servable = servable_of(model_config(BATCHING + INLINE), Echo(refuse))
    request = ask(1)
    infer(servable, request)
    await answered(request)

    assert request.error is meant


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ({"Y": np.zeros((1, 2))}, "output 'Y' of model 'm' has datatype FP64, but its config declares FP32"),
        ({"Y": np.zeros((1, 3), np.float32)}, "output 'Y' of model 'm' has shape [1, 3], but its config declares"),
        ({"Y": [[1.0, 2.0]]}, "output 'Y' of model 'm' is a list"),
        (None, "model 'm' returned a NoneType"),
    ],
)
@on_loop
async def test_an_answer_unlike_its_declaration_is_an_internal_error(returned: Any, words: str) -> None:
    servable = servable_of(model_config(BATCHING + INLINE), Echo(lambda inputs: returned))
    request = ask(1)
    infer(servable, request)
    await answered(request)

    assert request.error.code is Code.INTERNAL
    assert words in request.error.message
    assert failures(servable) == {"BACKEND": 1}


@on_loop
async def test_a_request_for_an_output_that_did_not_come_fails_alone() -> None:
    io = """
    input [ { name: "X", data_type: TYPE_FP32, dims: [ 2 ] } ]
    output [ { name: "Y", data_type: TYPE_FP32, dims: [ 2 ] }, { name: "Z", data_type: TYPE_FP32, dims: [ 2 ] } ]
    """
    servable = servable_of(model_config(BATCHING + INLINE, io=io), Echo())
    wants_z, wants_y, wants_all = ask(1, rows=2), ask(2), ask(3)
    wants_z.outputs, wants_y.outputs = ["Z"], ["Y"]
    infer(servable, wants_z, wants_y, wants_all)
    await answered(wants_z, wants_y, wants_all)

    assert wants_z.error.code is Code.INTERNAL
    assert "produced no output 'Z'" in wants_z.error.message
    assert wants_y.tensors["Y"].tolist() == answer_of(2)
    assert {name: array.tolist() for name, array in wants_all.tensors.items()} == {"Y": answer_of(3)}
    assert (servable.stats.success.count, failures(servable)) == (2, {"BACKEND": 1})


@on_loop
async def test_an_answer_that_cannot_be_delivered_costs_nobody_else_theirs() -> None:
    servable = servable_of(model_config(BATCHING + INLINE), Echo())
    requests = [ask(1), ask(2), ask(3)]

    def fail(response: object) -> None:
        raise RuntimeError("the pipe is broken")

    requests[1].reply = fail  # type: ignore[assignment]
    infer(servable, *requests)
    await answered(requests[0], requests[2])

    assert requests[2].tensors["Y"].tolist() == answer_of(3)
    assert servable.scheduler.is_idle


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
async def test_a_failed_request_adds_its_time_to_failures_only() -> None:
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
    assert (stats.success.ns, stats.queue.ns, stats.compute_infer.ns, stats.batches) == (0, 0, 0, {})


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
    servable = servable_of(model_config(LONG_DELAY + THREAD), instance)
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
