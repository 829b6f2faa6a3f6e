"""Which requests run together, on which instance, in which order."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from bident.errors import Code
from tests.unit.engine.engine_fakes import (
    BATCHING,
    INLINE,
    THREAD,
    VARIABLE,
    Asked,
    Echo,
    answer_of,
    answered,
    ask,
    busy,
    infer,
    model_config,
    on_loop,
    running,
    servable_of,
    tensor,
    turns,
    until,
)

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
