"""Sequences under random starts, ends, cancellations, timeouts and losses: all are answered once, no slot is lost."""

from __future__ import annotations

from random import Random

import pytest

from bident.engine.sequence.slots import Sequence
from bident.errors import ServeError
from tests.unit.engine.engine_fakes import Asked, on_loop, turns, until
from tests.unit.engine.engine_hands import Hand, served
from tests.unit.engine.sequence_site import DIRECT, OLDEST, scheduler, sequence_config, step

LONG = "max_sequence_idle_microseconds: 3600000000 "


class Traffic:
    """Random clients of one model over two instances."""

    def __init__(self, random: Random, hands: list[Hand], *, iterative: bool) -> None:
        self.random = random
        self.hands = hands
        self.iterative = iterative
        self.accepted: list[Asked] = []
        self.done = dict.fromkeys(hands, 0)

    def send(self, servable: object) -> None:
        key = self.random.randint(0 if self.iterative else 1, 12)
        request = step(key, key, start=self.random.random() < 0.4, end=self.random.random() < 0.3)
        if self.random.random() < 0.1:
            request.timeout_us = self.random.randint(1, 500)
        try:
            servable.infer(request)  # type: ignore[attr-defined]
        except ServeError:
            return
        self.accepted.append(request)

    def cancel(self, servable: object) -> None:
        waiting = [request for request in self.accepted if not request.is_answered]
        if waiting:
            self.random.choice(waiting).cancelled = True
            scheduler(servable).discard_cancelled()  # type: ignore[arg-type]

    def finish(self, hand: Hand, *, at_last: bool = False) -> None:
        """Answer the batch that ``hand`` has, if it has one, in one of many ways."""
        if self.done[hand] == len(hand.batches):
            return
        held = hand.batches[-1]
        self.done[hand] = len(hand.batches)
        if self.random.random() < 0.5:
            held.finish()
            return
        steps = list(range(len(held.requests)))
        self.random.shuffle(steps)
        first = self.random.random() < 0.5
        if first:
            held.executed()
        for index in steps:
            if self.iterative and not at_last and held.requests[index].sequence_id and self.random.random() < 0.4:
                held.answers.rescheduled(index)
            else:
                held.reply(index)
        if not first:
            held.executed()

    def lose(self, hand: Hand) -> None:
        if not hand.is_available:
            hand.come_back()
        elif self.done[hand] < len(hand.batches):
            self.done[hand] = len(hand.batches)
            hand.die(hand.batches[-1])
        else:
            hand.go()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("strategy", [DIRECT, OLDEST, OLDEST + "iterative_sequence: true "])
@on_loop
async def test_everybody_is_answered_once_and_no_slot_is_lost(strategy: str, seed: int) -> None:
    random = Random(f"{strategy} {seed}")
    hands = [Hand(), Hand()]
    servable = await served(*hands, config=sequence_config(strategy + LONG, "", batch=3))
    traffic = Traffic(random, hands, iterative="iterative" in strategy)
    for _ in range(400):
        act = random.random()
        if act < 0.6:
            traffic.send(servable)
        elif act < 0.65:
            traffic.cancel(servable)
        elif act < 0.67:
            traffic.lose(random.choice(hands))
        else:
            traffic.finish(random.choice(hands))
        if random.random() < 0.5:
            await turns(2)

    for hand in hands:
        if not hand.is_available:
            hand.come_back()
    servable.scheduler.drain(closing=True)

    def over() -> bool:
        for hand in hands:
            traffic.finish(hand, at_last=True)
        return servable.scheduler.is_idle

    await until(over, "the end")
    assert all(len(request.answers) == 1 for request in traffic.accepted)
    assert not servable.scheduler.has_sequences
    assert servable.scheduler.pending == 0
    inside = scheduler(servable)
    assert all(sequence is None for station in inside._stations for sequence in station.slots)
    assert not any(station.ready for station in inside._stations)
    assert not inside._backlog
    assert not inside._idle._until_ns
    # Each slot can be had, and only once: three in each instance.
    again = [Sequence(key) for key in range(7)]
    assert [inside._free.take(sequence) for sequence in again] == [True] * 6 + [False]
    assert len({(sequence.station, sequence.number) for sequence in again[:6]}) == 6
