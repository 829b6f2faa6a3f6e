"""Models that ask other models: a circle of models that wait for each other is found before it closes."""

from __future__ import annotations

import pytest

from bident.engine.calls import Calls
from bident.engine.servable import Servable
from bident.errors import Code, ServeError
from bident.wire.infer import InferRequest
from tests.unit.engine.engine_fakes import (
    Asked,
    NoModels,
    infer,
    model_config,
    on_loop,
    tensor,
    turns,
    until,
)
from tests.unit.engine.engine_hands import Hand, Held, running, served


class Town(NoModels):
    """Models that find each other."""

    def __init__(self) -> None:
        self.servables: dict[str, Servable] = {}
        self.cancelled: list[InferRequest] = []

    def find(self, name: str, version: str) -> Servable:
        if name not in self.servables:
            raise ServeError(Code.NOT_FOUND, f"no model '{name}'")
        return self.servables[name]

    def cancel(self, request: InferRequest) -> None:
        self.cancelled.append(request)

    async def add(self, name: str, count: int = 1) -> list[Hand]:
        hands = [Hand() for _ in range(count)]
        servable = await served(*hands, config=model_config("", batch=0, name=name))
        for lane in servable.request_lanes:
            lane.calls = Calls(self)
        # As after start(): each instance asks through the calls of its own lane.
        for hand, lane in zip(hands, servable.request_lanes, strict=True):
            hand.server = lane.calls
        self.servables[name] = servable
        return hands


def asked(model: str) -> Asked:
    return Asked(tensor("X", [1, -1], (2,)), model=model)


async def busy(town: Town, name: str, hand: Hand, count: int = 1) -> Held:
    infer(town.servables[name], asked(name))
    return await running(hand, count)


@on_loop
async def test_a_model_with_one_instance_cannot_ask_itself_while_it_executes() -> None:
    town = Town()
    (a,) = await town.add("a")
    held = await busy(town, "a", a)
    with pytest.raises(ServeError, match="model 'a' would wait for itself"):
        a.server.infer(asked("a"))
    held.finish()
    a.server.infer(asked("a"))  # from a thread that execute has left behind
    await running(a, 2)


@on_loop
async def test_with_two_instances_the_other_one_answers_until_it_asks_as_well() -> None:
    town = Town()
    first, second = await town.add("a", 2)
    infer(town.servables["a"], asked("a"))
    await until(lambda: first.batches or second.batches)
    busy_one, other = (first, second) if first.batches else (second, first)
    inner = asked("a")
    busy_one.server.infer(inner)
    held = await running(other)
    with pytest.raises(ServeError, match="would wait for itself"):
        other.server.infer(asked("a"))
    held.finish()
    assert inner.tensors["Y"].tolist() == [1, -1]
    busy_one.server.infer(asked("a"))
    await running(other, 2)


@on_loop
async def test_a_circle_over_others_is_found_where_it_would_close() -> None:
    town = Town()
    (a,), (b,), (c,) = [await town.add(name) for name in "abc"]
    await busy(town, "a", a)
    a.server.infer(asked("b"))
    await running(b)
    b.server.infer(asked("c"))
    held = await running(c)
    for name in "abc":
        with pytest.raises(ServeError, match=f"model '{name}' would wait for itself"):
            c.server.infer(asked(name))
    held.finish()
    b.server.infer(asked("c"))


@on_loop
async def test_a_queue_behind_others_is_no_circle() -> None:
    town = Town()
    (a,), (b,) = [await town.add(name) for name in "ab"]
    held = await busy(town, "b", b)
    await busy(town, "a", a)
    inner = asked("b")
    a.server.infer(inner)
    await turns()
    assert not inner.is_answered
    held.finish()
    (await running(b, 2)).finish()
    assert inner.tensors["Y"].tolist() == [1, -1]


@on_loop
async def test_a_refused_or_answered_question_is_no_longer_waited_for() -> None:
    town = Town()
    (a,), (b,) = [await town.add(name) for name in "ab"]
    (lane,) = town.servables["a"].request_lanes
    await busy(town, "a", a)
    with pytest.raises(ServeError):
        a.server.infer(asked("nobody"))
    with pytest.raises(ServeError):
        a.server.infer(Asked(tensor("WRONG", [1], (1,)), model="b"))
    assert not lane.calls.open
    inner = asked("b")
    a.server.infer(inner)
    assert list(lane.calls.open) == [inner]
    (await running(b)).finish()
    assert not lane.calls.open
    assert a.server.is_model_ready("b", "")
    b.go()
    assert not a.server.is_model_ready("b", "")
    assert not a.server.is_model_ready("nobody", "")
