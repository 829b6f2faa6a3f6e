"""Sequences in instances that may go, and requests that a model wants once more."""

from __future__ import annotations

from bident.errors import Code
from tests.unit.engine.engine_fakes import answered, failures, infer, on_loop, turns, until
from tests.unit.engine.engine_hands import BROKEN, Hand, running, served
from tests.unit.engine.sequence_site import CONTROLS, DIRECT, OLDEST, column, scheduler, sequence_config, step

LONG = "max_sequence_idle_microseconds: 3600000000 "
ITERATIVE = "iterative_sequence: true "
DECOUPLED = "model_transaction_policy { decoupled: true }"


@on_loop
async def test_a_lost_instance_ends_its_sequences_and_no_others() -> None:
    hands = [Hand(), Hand()]
    servable = await served(*hands, config=sequence_config(DIRECT + LONG, "", batch=2))
    mine, others = step(1, 1, start=True), step(2, 2, start=True)
    infer(servable, mine, others)
    for hand in hands:
        (await running(hand)).finish()
    second, third = step(1, 3), step(1, 4)
    infer(servable, second, third)
    held = await running(hands[0], 2)

    hands[0].die(held)
    assert second.error is BROKEN
    assert third.error.code is Code.UNAVAILABLE
    assert "sequence 1 has ended: the instance of model 'm' that served it has gone" in third.error.message
    late = step(2, 5)
    infer(servable, late)
    (await running(hands[1], 2)).finish()
    assert late.tensors["Y"].tolist() == [[5, -5]]
    assert list(scheduler(servable)._open) == [2]


@on_loop
async def test_sequences_wait_for_an_instance_to_come_back() -> None:
    hand = Hand()
    servable = await served(hand, config=sequence_config(OLDEST + LONG, ""))
    hand.go()
    request = step(1, 1, start=True)
    infer(servable, request)
    await turns()
    assert not hand.batches
    hand.come_back()
    (await running(hand)).finish()
    await answered(request)
    assert request.tensors["Y"].tolist() == [[1, -1]]


@on_loop
async def test_without_any_instance_sequences_are_refused() -> None:
    hand = Hand()
    servable = await served(hand, config=sequence_config(OLDEST + LONG, ""))
    waiting = step(1, 1, start=True)
    hand.go("it is broken", lost=True)
    infer(servable, waiting)
    await answered(waiting)
    assert waiting.error.code is Code.UNAVAILABLE
    assert "none of its instances is: it is broken" in waiting.error.message
    assert not scheduler(servable)._open
    assert failures(servable) == {"REJECTED": 1}


@on_loop
async def test_an_instance_that_refuses_a_batch_fails_its_requests_only() -> None:
    hand = Hand()
    servable = await served(hand, config=sequence_config(DIRECT + LONG + CONTROLS, ""))
    infer(servable, step(1, 1, start=True), step(2, 2, start=True))
    (await running(hand)).finish()
    hand.refusal = BROKEN
    refused = step(2, 3)
    infer(servable, refused)
    await answered(refused)
    assert refused.error is BROKEN
    assert failures(servable) == {"BACKEND": 1}, "the empty place of sequence 1 is no request"
    hand.refusal = None
    later = step(2, 4, end=True)
    infer(servable, later)
    (await running(hand, 2)).finish()
    assert later.tensors["Y"].tolist() == [[4, -4]]


@on_loop
async def test_single_answers_go_to_whom_they_belong() -> None:
    hand = Hand()
    servable = await served(hand, config=sequence_config(DIRECT + LONG, ""))
    starts = [step(key, key, start=True) for key in (1, 2, 3)]
    infer(servable, *starts)
    (await running(hand)).finish()
    asked = [step(1, 7), step(3, 9)]
    infer(servable, *asked)
    held = await running(hand, 2)
    held.reply(0, 70)
    held.reply(2, 90)
    held.reply(1, 80)
    held.executed()
    assert [request.tensors["Y"].tolist() for request in asked] == [[[70, -70]], [[90, -90]]]
    assert servable.scheduler.is_idle


@on_loop
async def test_the_next_request_waits_for_the_answer_and_not_only_for_the_execution() -> None:
    hand = Hand()
    servable = await served(hand, config=sequence_config(OLDEST + LONG, ""))
    infer(servable, step(1, 1, start=True), step(1, 2))
    held = await running(hand)
    held.executed()
    await turns()
    assert len(hand.batches) == 1
    held.reply(0, 1)
    await running(hand, 2)
    hand.batches[1].finish()


@on_loop
async def test_a_decoupled_model_gets_the_next_request_while_it_still_answers_the_last() -> None:
    hand = Hand()
    servable = await served(hand, config=sequence_config(OLDEST + LONG, DECOUPLED))
    requests = [step(1, 1, start=True), step(1, 2, end=True)]
    infer(servable, *requests)
    first = await running(hand)
    first.reply(0, 10, final=False)
    first.executed()
    second = await running(hand, 2)
    first.reply(0, 11)
    second.reply(0, 20)
    second.executed()
    await turns()
    assert [len(request.answers) for request in requests] == [2, 1]
    assert servable.scheduler.is_idle
    assert not servable.scheduler.has_sequences


# Iterative sequences


def again(hand: Hand, number: int, index: int = 0) -> None:
    """The model has executed a batch and wants one request of it once more."""
    held = hand.batches[number]
    held.executed()
    held.answers.rescheduled(index)


@on_loop
async def test_a_rescheduled_request_runs_again_in_its_sequence_until_it_is_answered() -> None:
    hand = Hand()
    servable = await served(hand, config=sequence_config(OLDEST + LONG + CONTROLS + ITERATIVE, ""))
    request = step(0, 5)
    infer(servable, request)
    for turn in range(3):
        held = await running(hand, turn + 1)
        assert column(held.inputs, "START") == [int(turn == 0)]
        assert column(held.inputs, "CORRID") == [1]
        again(hand, turn)
    held = await running(hand, 4)
    held.finish()
    await answered(request)
    assert request.tensors["Y"].tolist() == [[5, -5]]
    assert not scheduler(servable)._open
    assert all(slot is None for slot in scheduler(servable)._stations[0].slots)
    # As Triton counts: each run is a success.
    assert (servable.stats.success.count, servable.stats.executions) == (4, 4)


@on_loop
async def test_others_join_the_batches_of_a_rescheduled_request() -> None:
    hand = Hand()
    servable = await served(hand, config=sequence_config(OLDEST + LONG + ITERATIVE, ""))
    long, short = step(0, 1), step(0, 2)
    infer(servable, long)
    await running(hand)
    infer(servable, short)
    again(hand, 0)
    held = await running(hand, 2)
    assert sorted(hand.firsts[1]) == [1, 2]
    place = hand.firsts[1].index(1)
    again(hand, 1, place)
    held.reply(1 - place, 2)
    await answered(short)
    assert not long.is_answered
    (await running(hand, 3)).finish()
    await answered(long)


@on_loop
async def test_ids_that_the_server_gives_are_nobody_elses() -> None:
    hand = Hand()
    servable = await served(hand, config=sequence_config(OLDEST + LONG + ITERATIVE + CONTROLS, ""))
    infer(servable, step(1, 1, start=True), step(0, 2), step(0, 3))
    held = await running(hand)
    assert sorted(column(held.inputs, "CORRID")) == [1, 2, 3]
    held.finish()


@on_loop
async def test_a_cancelled_request_is_not_run_again() -> None:
    hand = Hand()
    servable = await served(hand, config=sequence_config(OLDEST + LONG + ITERATIVE, ""))
    request = step(0, 5)
    infer(servable, request)
    await running(hand)
    request.cancelled = True
    servable.scheduler.discard_cancelled()
    assert hand.cancelled == [[0]]
    again(hand, 0)
    await answered(request)
    assert request.error.code is Code.CANCELLED
    await until(lambda: servable.scheduler.is_idle, "the end")
    assert len(hand.batches) == 1
    assert not servable.scheduler.has_sequences


@on_loop
async def test_a_rescheduled_request_does_not_outlive_its_instance() -> None:
    hand = Hand()
    servable = await served(hand, config=sequence_config(OLDEST + LONG + ITERATIVE, ""))
    request = step(0, 5)
    infer(servable, request)
    await running(hand)
    hand.go()
    again(hand, 0)
    await answered(request)
    assert "has gone" in request.error.message
    assert servable.scheduler.is_idle


@on_loop
async def test_a_model_without_iterative_sequences_may_not_reschedule() -> None:
    hand = Hand()
    servable = await served(hand, config=sequence_config(OLDEST + LONG, ""))
    request = step(1, 5, start=True)
    infer(servable, request)
    await running(hand)
    again(hand, 0)
    await answered(request)
    assert request.error.code is Code.UNSUPPORTED
    assert "iterative_sequence: true" in request.error.message
