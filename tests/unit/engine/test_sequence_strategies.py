"""Which sequences run together, at which places, and what the model is told of each."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from bident.errors import ServeError
from tests.unit.engine.engine_fakes import (
    THREAD,
    VARIABLE,
    Asked,
    Echo,
    answered,
    infer,
    on_loop,
    running,
    servable_of,
    tensor,
    turns,
    until,
)
from tests.unit.engine.sequence_site import CONTROLS, DIRECT, OLDEST, column, of_sequence, row, sequence_config, step

LONG = "max_sequence_idle_microseconds: 3600000000"


def of(strategy: str, instance: Echo, *, more: str = THREAD, **rest: Any) -> Any:
    return servable_of(sequence_config(strategy + LONG + CONTROLS, more, **rest), instance)


async def begun(servable: Any, *keys: int) -> None:
    starts = [step(key, key, start=True) for key in keys]
    for start in starts:
        infer(servable, start)
        await answered(start)


# Direct


@on_loop
async def test_direct_keeps_every_sequence_at_its_place_and_says_which_places_are_empty() -> None:
    instance = Echo()
    servable = of(DIRECT, instance)
    await begun(servable, 11, 12, 13)
    last = step(13, 5, end=True)
    infer(servable, last)
    await answered(last)

    batch = instance.batches[-1]
    assert column(batch, "X") == [0, 0, 5]
    assert batch["READY"].tolist() == [[False], [False], [True]]
    assert batch["START"].tolist() == [[0], [0], [0]]
    assert batch["END"].tolist() == [[-1], [-1], [2]]
    assert batch["CORRID"].tolist() == [[0], [0], [13]]
    assert batch["CORRID"].dtype == np.uint64
    assert last.tensors["Y"].tolist() == [[5, -5]]
    # An empty place is none that asked; the size of a batch counts it, as with Triton.
    assert (servable.stats.success.count, servable.stats.inferences) == (4, 4)
    assert sorted(servable.stats.batches) == [1, 2, 3]


@on_loop
async def test_direct_runs_what_is_ready_together() -> None:
    instance = Echo()
    servable = of(DIRECT, instance)
    await begun(servable, 11, 12, 13)
    more = [step(13, 1), step(13, 2), step(11, 3)]
    infer(servable, *more)
    await answered(*more)
    assert instance.firsts[-2:] == [[3, 0, 1], [0, 0, 2]]


@on_loop
async def test_direct_gives_the_place_of_an_ended_sequence_to_the_next() -> None:
    instance = Echo()
    servable = of(DIRECT, instance, batch=2)
    await begun(servable, 11, 12)
    waiting = [step(13, 1, start=True), step(13, 2)]
    end = step(11, 9, end=True)
    infer(servable, *waiting, end)
    await answered(*waiting, end)
    assert instance.firsts[-3:] == [[9], [1], [2]]


@on_loop
async def test_direct_leaves_places_of_other_shapes_empty() -> None:
    instance = Echo(lambda inputs: {"Y": inputs["X"]})
    servable = of(DIRECT, instance, io=VARIABLE)
    instance.hold()
    blocker = row(9, [0.0], start=True)
    infer(servable, blocker)
    await running(instance)
    asked = [row(1, [1.0, 1.0], start=True), row(2, [2.0], start=True), row(3, [3.0, 3.0], start=True)]
    infer(servable, *asked)
    instance.release()
    await answered(*asked)
    assert [batch["X"].tolist() for batch in instance.batches[1:]] == [
        [[0, 0], [1, 1], [0, 0], [3, 3]],
        [[0], [0], [2]],
    ]
    assert [request.tensors["Y"].tolist() for request in asked] == [[[1, 1]], [[2]], [[3, 3]]]


@on_loop
async def test_direct_waits_for_company_no_longer_than_its_delay() -> None:
    instance = Echo()
    delay = "direct { max_queue_delay_microseconds: 3000 minimum_slot_utilization: 0.5 }"
    servable = of(delay, instance, batch=4)
    await begun(servable, 1, 2, 3)
    alone = step(1, 5)
    infer(servable, alone)
    await turns()
    assert not alone.is_answered
    await answered(alone)
    assert instance.firsts[-1] == [5]
    together = [step(2, 6), step(3, 7)]
    for request in together:
        infer(servable, request)
        await turns(3)
    await until(lambda: all(request.is_answered for request in together), "half of the slots, which is enough")
    assert instance.firsts[-1] == [0, 6, 7]


@on_loop
async def test_direct_does_not_wait_when_nobody_else_could_come() -> None:
    instance = Echo()
    servable = of("direct { max_queue_delay_microseconds: 60000000 minimum_slot_utilization: 1 }", instance)
    first, second = step(1, 1, start=True), step(1, 2)
    infer(servable, first, second)
    await answered(first, second)


@on_loop
async def test_a_model_that_does_not_batch_has_one_sequence_for_each_instance() -> None:
    instances = [Echo(), Echo()]
    servable = servable_of(sequence_config(DIRECT + LONG + CONTROLS, THREAD, batch=0), *instances)
    given = [of_sequence(Asked(tensor("X", [key, 0], (2,))), key, start=True) for key in (1, 2, 3)]
    infer(servable, *given)
    await answered(*given[:2])
    await turns()
    assert not given[2].is_answered
    assert [len(instance.batches) for instance in instances] == [1, 1]
    assert instances[0].batches[0]["START"].tolist() == [1]
    assert given[0].tensors["Y"].tolist() == [1, 0]


@on_loop
async def test_new_sequences_go_to_the_lowest_free_slot_of_any_instance() -> None:
    instances = [Echo(), Echo()]
    servable = servable_of(sequence_config(DIRECT + LONG, THREAD, batch=2), *instances)
    await begun(servable, 1, 2, 3, 4)
    ends = [step(key, 10 * key, end=True) for key in (1, 2, 3, 4)]
    infer(servable, *ends)
    await answered(*ends)
    assert [instance.firsts[-1] for instance in instances] == [[10, 30], [20, 40]]


# Oldest


@on_loop
async def test_oldest_batches_whoever_has_a_request() -> None:
    instance = Echo()
    servable = of(OLDEST, instance)
    await begun(servable, 11, 12, 13)
    more = [step(13, 1), step(13, 2), step(11, 3)]
    infer(servable, *more)
    await answered(*more)
    assert instance.firsts[-2:] == [[1, 3], [2]]
    assert instance.batches[-2]["CORRID"].tolist() == [[13], [11]]
    assert all(batch["READY"].all() for batch in instance.batches)


@on_loop
async def test_oldest_has_as_many_candidates_as_declared() -> None:
    instance = Echo()
    servable = of("oldest { max_candidate_sequences: 5 }", instance, batch=2)
    starts = [step(key, key, start=True) for key in range(1, 8)]
    infer(servable, *starts)
    await answered(*starts[:5])
    await turns()
    assert servable.scheduler.pending == 2
    assert [len(firsts) for firsts in instance.firsts] == [2, 2, 1]


@on_loop
async def test_oldest_prefers_its_batch_sizes() -> None:
    instance = Echo()
    servable = of("oldest { max_candidate_sequences: 9 preferred_batch_size: [ 2, 4 ] }", instance)
    starts = [step(key, key, start=True) for key in range(1, 8)]
    infer(servable, *starts)
    await answered(*starts)
    assert instance.rows == [4, 2, 1]


@on_loop
async def test_oldest_waits_for_candidates_that_may_still_send() -> None:
    instance = Echo()
    servable = of("oldest { max_queue_delay_microseconds: 60000000 }", instance, batch=2)
    starts = [step(key, key, start=True) for key in (1, 2)]
    infer(servable, *starts)
    await answered(*starts)
    alone = step(1, 5)
    infer(servable, alone)
    await turns()
    assert not alone.is_answered
    other = step(2, 6)
    infer(servable, other)
    await answered(alone, other)
    assert instance.firsts[-1] == [5, 6]


# What the model is told


def controls_of(word: str) -> str:
    return f'control_input {{ name: "ID" control {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_{word} }} }}'


@pytest.mark.parametrize(
    ("word", "key"),
    [("UINT64", 2**64 - 1), ("INT64", 2**63 - 1), ("UINT32", 2**32 - 1), ("INT32", 2**31 - 1), ("STRING", "é")],
)
@on_loop
async def test_ids_are_told_in_the_datatype_that_is_declared(word: str, key: int | str) -> None:
    instance = Echo()
    servable = servable_of(sequence_config(DIRECT + controls_of(word)), instance)
    request = step(key, start=True)
    infer(servable, request)
    await answered(request)
    found = instance.batches[0]["ID"]
    assert found.shape == (1, 1)
    assert found.tolist() == [[key.encode() if isinstance(key, str) else key]]


@pytest.mark.parametrize(
    ("word", "key", "fragment"),
    [
        ("INT32", 2**31, "takes sequence ids as INT32 (its control input 'ID'), and the sequence id 2147483648 does"),
        ("UINT64", "a", "the sequence id 'a' is text: send a number"),
        ("STRING", 1, "the sequence id 1 is a number: send text"),
    ],
)
@on_loop
async def test_ids_that_cannot_be_told_are_refused(word: str, key: int | str, fragment: str) -> None:
    servable = servable_of(sequence_config(DIRECT + controls_of(word)), Echo())
    with pytest.raises(ServeError) as raised:
        servable.infer(step(key, start=True))
    assert fragment in raised.value.message
    assert not servable.scheduler.has_sequences


@on_loop
async def test_no_request_is_answered_with_the_rows_of_another() -> None:
    """Random traffic over two instances of either strategy: each sequence gets its own sums."""
    for strategy in (DIRECT, OLDEST):
        sums: dict[tuple[int, int], float] = {}

        def add(inputs: dict[str, np.ndarray], sums: dict[tuple[int, int], float] = sums) -> dict[str, np.ndarray]:
            y = np.zeros_like(inputs["X"])
            for place in range(len(y)):
                if inputs["READY"][place, 0]:
                    key = (0, int(inputs["CORRID"][place, 0]))
                    sums[key] = (0 if inputs["START"][place, 0] else sums[key]) + float(inputs["X"][place, 0])
                    y[place] = sums[key]
            return {"Y": y}

        servable = servable_of(sequence_config(strategy + LONG + CONTROLS, THREAD, batch=4), Echo(add), Echo(add))
        random = np.random.default_rng(7)
        wanted: list[tuple[Asked, float]] = []
        for key in random.permutation(40):
            total = 0.0
            length = int(random.integers(1, 6))
            for turn in range(length):
                value = float(random.integers(1, 100))
                total += value
                request = step(int(key) + 1, value, start=turn == 0, end=turn == length - 1)
                wanted.append((request, total))
                infer(servable, request)
            await turns(int(random.integers(0, 3)))
        await answered(*(request for request, _ in wanted))
        found = [(float(request.tensors["Y"][0, 0]), total) for request, total in wanted]
        assert all(own == total for own, total in found), json.dumps(found)
