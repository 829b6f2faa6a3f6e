"""How sequences begin, wait, go on and end."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pytest

from bident.errors import Code, ServeError
from tests.unit.engine.engine_fakes import (
    INLINE,
    THREAD,
    Asked,
    Echo,
    answered,
    failures,
    infer,
    on_loop,
    running,
    servable_of,
    tensor,
    turns,
    until,
)
from tests.unit.engine.sequence_site import CONTROLS, DIRECT, OLDEST, scheduler, sequence_config, step

LONG = "max_sequence_idle_microseconds: 3600000000"
BOTH = pytest.mark.parametrize("strategy", [DIRECT, OLDEST])


def refusal(call: Callable[[], None], code: Code = Code.INVALID_ARG) -> str:
    with pytest.raises(ServeError) as raised:
        call()
    assert raised.value.code is code
    return raised.value.message


@BOTH
@on_loop
async def test_the_requests_of_a_sequence_run_one_after_the_other(strategy: str) -> None:
    instance = Echo()
    servable = servable_of(sequence_config(strategy + LONG), instance)
    requests = [step(1, 1, start=True), step(1, 2), step(1, 3, end=True)]

    infer(servable, *requests)
    await answered(*requests)

    assert instance.firsts == [[1], [2], [3]]
    assert [request.tensors["Y"].tolist() for request in requests] == [[[1, -1]], [[2, -2]], [[3, -3]]]
    assert not servable.scheduler.has_sequences
    assert servable.stats.success.count == 3


@pytest.mark.parametrize("key", [0, ""])
@on_loop
async def test_a_request_needs_an_id(key: int | str) -> None:
    servable = servable_of(sequence_config(), Echo())
    message = refusal(lambda: servable.infer(step(key, start=True)))
    assert "inference request to model 'm' must specify a non-zero or non-empty correlation ID" in message


@on_loop
async def test_a_sequence_begins_with_start() -> None:
    servable = servable_of(sequence_config(), Echo())
    message = refusal(lambda: servable.infer(step(5)))
    assert "inference request for sequence 5 to model 'm' must specify the START flag on the first request" in message
    refusal(lambda: servable.infer(step("five", end=True)))
    assert not servable.scheduler.has_sequences
    assert failures(servable) == {}  # as with Triton


@on_loop
async def test_a_request_has_one_row() -> None:
    servable = servable_of(sequence_config(), Echo())
    message = refusal(lambda: servable.infer(step(5, start=True, rows=2)))
    assert "must specify batch-size 1 due to requirements of sequence batcher" in message
    assert not servable.scheduler.has_sequences


@on_loop
async def test_numbers_that_do_not_fit_begin_no_sequence() -> None:
    servable = servable_of(sequence_config(), Echo())
    request = step(5, start=True)
    request.inputs["X"].data = [1e39, 0]
    assert "'X' is out of range for FP32" in refusal(lambda: servable.infer(request))
    assert "START" in refusal(lambda: servable.infer(step(5)))


@pytest.mark.parametrize(
    ("key", "fragment"), [(2**64, "is no 64-bit number"), ("é" * 65, "longer than 128 characters")]
)
@on_loop
async def test_ids_are_bounded(key: int | str, fragment: str) -> None:
    servable = servable_of(sequence_config(), Echo())
    assert fragment in refusal(lambda: servable.infer(step(key, start=True)))
    largest = [step(2**64 - 1, start=True), step("é" * 64, start=True)]
    infer(servable, *largest)
    await answered(*largest)


@on_loop
async def test_a_number_and_a_text_are_different_ids() -> None:
    servable = servable_of(sequence_config(OLDEST + LONG), Echo())
    infer(servable, step(1, start=True))
    assert "sequence 1 to model" in refusal(lambda: servable.infer(step("1")))
    infer(servable, step("1", start=True), step(1, end=True))
    await turns()
    assert "sequence 1 to model" in refusal(lambda: servable.infer(step(1)))
    infer(servable, step("1"))


@on_loop
async def test_a_second_start_begins_anew_in_the_same_slot(caplog: pytest.LogCaptureFixture) -> None:
    instance = Echo()
    servable = servable_of(sequence_config(DIRECT + LONG + CONTROLS), instance)
    requests = [step(3, 1, start=True), step(3, 2, start=True), step(3, 3, end=True)]
    with caplog.at_level(logging.WARNING, "bident.engine"):
        infer(servable, *requests)
        await answered(*requests)
    assert "sequence 3 for model 'm' has a conflict" in caplog.text
    assert [batch["START"].tolist() for batch in instance.batches] == [[[1]], [[1]], [[0]]]
    assert instance.firsts == [[1], [2], [3]]


@on_loop
async def test_one_request_may_be_the_whole_sequence() -> None:
    instance = Echo()
    servable = servable_of(sequence_config(DIRECT + CONTROLS, batch=1), instance)
    requests = [step(key, key, start=True, end=True) for key in (1, 2, 1)]
    infer(servable, *requests)
    assert "START" in refusal(lambda: servable.infer(step(1)))
    await answered(*requests)
    assert instance.firsts == [[1], [2], [1]]
    assert [batch["END"].tolist() for batch in instance.batches] == [[[2]]] * 3


@on_loop
async def test_a_failed_request_does_not_end_its_sequence() -> None:
    def fail(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if inputs["X"][0, 0] == 2:
            raise ServeError(Code.UNAVAILABLE, "not two")
        return {"Y": inputs["X"]}

    servable = servable_of(sequence_config(DIRECT + LONG), Echo(fail))
    requests = [step(1, 1, start=True), step(1, 2), step(1, 3, end=True)]
    infer(servable, *requests)
    await answered(*requests)
    assert requests[1].error.message == "not two"
    assert requests[2].tensors["Y"].tolist() == [[3, -3]]
    assert failures(servable) == {"BACKEND": 1}


# The backlog


@BOTH
@on_loop
async def test_sequences_wait_for_a_slot_first_come_first_served(strategy: str) -> None:
    instance = Echo()
    servable = servable_of(sequence_config(strategy + LONG, batch=1), instance)
    first, second, third = (step(key, key, start=True) for key in (1, 2, 3))
    more = step(2, 20, end=True)
    infer(servable, first, second, third, more)
    await answered(first)
    await turns()
    assert servable.scheduler.pending == 3
    assert instance.firsts == [[1]]

    infer(servable, step(1, 10, end=True))
    await answered(second, more, third)
    assert instance.firsts == [[1], [10], [2], [20], [3]]
    assert servable.scheduler.is_idle


@on_loop
async def test_a_timeout_counts_in_the_backlog_for_the_whole_sequence() -> None:
    servable = servable_of(sequence_config(DIRECT + LONG, batch=1), Echo())
    late = [step(2, 2, start=True), step(2, 3)]
    late[1].timeout_us = 1000
    patient = step(3, 3, start=True)
    infer(servable, step(1, start=True), *late, patient)
    await answered(*late)
    for request in late:
        assert request.error.code is Code.UNAVAILABLE
        assert "timeout of the corresponding sequence has been expired" in request.error.message
    assert "START" in refusal(lambda: servable.infer(step(2)))
    assert not patient.is_answered
    assert failures(servable) == {"REJECTED": 2}
    infer(servable, step(1, end=True))
    await answered(patient)


@on_loop
async def test_a_timeout_does_not_count_in_a_slot() -> None:
    instance = Echo()
    servable = servable_of(sequence_config(DIRECT + LONG, THREAD), instance)
    instance.hold()
    requests = [step(1, 1, start=True), step(1, 2)]
    infer(servable, requests[0])
    await running(instance)
    requests[1].timeout_us = 1
    infer(servable, requests[1])
    await turns(50)
    instance.release()
    await answered(*requests)
    assert requests[1].response.error is None


# Idle sequences


@BOTH
@on_loop
async def test_an_idle_sequence_gives_up_its_slot(strategy: str) -> None:
    servable = servable_of(sequence_config(strategy + "max_sequence_idle_microseconds: 2000", batch=1), Echo())
    waiting = step(2, 2, start=True)
    infer(servable, step(1, 1, start=True), waiting)
    await answered(waiting)
    assert "START" in refusal(lambda: servable.infer(step(1)))


@on_loop
async def test_a_sequence_is_not_idle_while_its_model_works() -> None:
    instance = Echo()
    servable = servable_of(sequence_config("max_sequence_idle_microseconds: 1000", THREAD), instance)
    instance.hold()
    first, second = step(1, 1, start=True), step(1, 2, end=True)
    infer(servable, first)
    await running(instance)
    loop_time = first.queued_ns
    await until(lambda: step(1).received_ns - loop_time > 5_000_000, "five times as long")
    infer(servable, second)
    instance.release()
    await answered(first, second)
    assert second.response.error is None


@on_loop
async def test_each_request_begins_the_idle_time_anew() -> None:
    servable = servable_of(sequence_config("max_sequence_idle_microseconds: 100000"), Echo())
    other = step(2, start=True)
    infer(servable, step(1, start=True), other)
    await answered(other)
    order = list(scheduler(servable)._idle._until_ns)
    again = step(1)
    infer(servable, again)
    await answered(again)
    assert [sequence.key for sequence in order] == [1, 2]
    assert [sequence.key for sequence in scheduler(servable)._idle._until_ns] == [2, 1]


# Clients that go


@BOTH
@on_loop
async def test_what_follows_a_cancelled_request_is_cancelled_too(strategy: str) -> None:
    instance = Echo()
    servable = servable_of(sequence_config(strategy + LONG, THREAD), instance)
    instance.hold()
    requests = [step(1, 1, start=True), step(1, 2), step(1, 3), step(1, 4)]
    other = step(2, 9, start=True)
    infer(servable, requests[0])
    await running(instance)
    infer(servable, *requests[1:], other)
    requests[2].cancelled = True
    servable.scheduler.discard_cancelled()
    assert [request.is_answered for request in requests] == [False, False, True, True]
    assert {request.error.code for request in requests[2:]} == {Code.CANCELLED}
    assert "START" in refusal(lambda: servable.infer(step(1)))
    instance.release()
    await answered(*requests, other)
    assert requests[1].tensors["Y"].tolist() == [[2, -2]]
    assert failures(servable) == {"CANCELED": 2}
    assert servable.scheduler.is_idle


@on_loop
async def test_a_cancelled_sequence_leaves_the_backlog() -> None:
    servable = servable_of(sequence_config(DIRECT + LONG, batch=1), Echo())
    gone, next_one = step(2, 2, start=True), step(3, 3, start=True)
    infer(servable, step(1, start=True), gone, next_one)
    gone.cancelled = True
    servable.scheduler.discard_cancelled()
    assert gone.error.code is Code.CANCELLED
    infer(servable, step(1, end=True))
    await answered(next_one)


# The end


@on_loop
async def test_a_stopping_server_begins_no_sequence_and_ends_those_under_way() -> None:
    servable = servable_of(sequence_config(DIRECT + LONG), Echo())
    infer(servable, step(1, 1, start=True))
    servable.scheduler.drain(closing=False)
    message = refusal(lambda: servable.infer(step(2, start=True)), Code.UNAVAILABLE)
    assert "scheduler for model has stopped accepting new inference requests" in message
    last = step(1, 2, end=True)
    assert servable.scheduler.has_sequences
    infer(servable, last)
    await answered(last)
    assert not servable.scheduler.has_sequences


@BOTH
@on_loop
async def test_an_unloaded_model_answers_its_backlog_without_waiting_for_open_sequences(strategy: str) -> None:
    instance = Echo()
    servable = servable_of(sequence_config(strategy + LONG, batch=1), instance)
    waiting = [step(2, 2, start=True), step(3, 3, start=True)]
    infer(servable, step(1, 1, start=True), *waiting)
    await turns()
    closed: list[bool] = []
    servable.retire(lambda: closed.append(True))
    await answered(*waiting)
    await until(lambda: closed, "the end")
    assert instance.firsts == [[1], [2], [3]]
    assert instance.closed == 1


@on_loop
async def test_nothing_of_an_unloaded_model_waits_for_sequences_to_become_idle() -> None:
    servable = servable_of(sequence_config(DIRECT + LONG), Echo())
    request = step(1, 1, start=True)
    infer(servable, request)
    await answered(request)
    assert scheduler(servable)._alarm.is_set
    servable.retire(lambda: None)
    await turns()
    assert not scheduler(servable)._alarm.is_set


@on_loop
async def test_who_holds_a_retired_model_may_still_ask_it() -> None:
    servable = servable_of(sequence_config(DIRECT + LONG), Echo())
    servable.hold()
    servable.retire(lambda: None)
    late = step(1, 1, start=True)
    infer(servable, late)
    await answered(late)
    assert not servable.scheduler.has_sequences
    servable.release()


@BOTH
@on_loop
async def test_ten_thousand_sequences(strategy: str) -> None:
    servable = servable_of(sequence_config(strategy + LONG, INLINE, batch=64), Echo())
    keys = range(1, 10_001)
    starts = [step(key, key, start=True) for key in keys]
    ends = [step(key, key, end=True) for key in keys]
    infer(servable, *starts, *ends)
    await answered(*starts, *ends)
    assert all(request.tensors["Y"][0, 0] == request.sequence_id for request in [*starts, *ends])
    assert servable.scheduler.is_idle
    assert not servable.scheduler.has_sequences


@on_loop
async def test_a_client_may_not_send_a_control_itself() -> None:
    servable = servable_of(sequence_config(DIRECT + CONTROLS), Echo())
    request = Asked(tensor("X", [1, 2], (1, 2)), tensor("START", [1], (1, 1)))
    assert "unexpected inference input 'START'" in refusal(lambda: servable.infer(request))
