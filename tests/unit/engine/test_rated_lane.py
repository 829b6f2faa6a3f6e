"""Models under the rate limiter: to clients they only seem busier."""

from __future__ import annotations

import asyncio

import numpy as np

from bident.engine.rate import RateLimiter
from bident.engine.servable import LoadedModel, Servable
from bident.engine.stats import ModelStats
from bident.errors import Code
from bident.wire.infer import InferRequest
from tests.unit.engine import engine_fakes
from tests.unit.engine.engine_fakes import (
    BATCHING,
    INLINE,
    THREAD,
    Asked,
    Echo,
    answer_of,
    answered,
    ask,
    busy,
    clients_of,
    infer,
    model_config,
    on_loop,
    turns,
    until,
)
from tests.unit.engine.engine_hands import Hand
from tests.unit.engine.test_rate import needing

R = ("R", 1)


class Yard(engine_fakes.NoModels):
    """Models that share one limiter, and may ask each other."""

    def __init__(self) -> None:
        self.limiter = RateLimiter()
        self.servables: dict[str, Servable] = {}
        self.changed = asyncio.Event()
        """Until then a load or unload that a model asks for takes."""

    def add(self, name: str, *instances: object, text: str = THREAD, clients: int = 9) -> Servable:
        config = model_config(f"{BATCHING} {text} {needing(R, count=len(instances))}", name=name)
        loaded = LoadedModel(config, {}, {1: list(instances)})  # type: ignore[dict-item]
        loop = asyncio.get_running_loop()
        servable = Servable(loaded, 1, ModelStats(), loop, clients_of(clients), self, limiter=self.limiter)
        engine_fakes._in_service.append(servable)
        self.servables[name] = servable
        return servable

    def find(self, name: str, version: str) -> Servable:
        return self.servables[name]

    async def load(self, name: str, config: str | None, files: dict[str, bytes]) -> None:
        await self.changed.wait()

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        await self.changed.wait()


@on_loop
async def test_two_models_that_need_the_same_run_one_after_the_other() -> None:
    yard = Yard()
    first, second = Echo(), Echo()
    one, other = yard.add("one", first), yard.add("other", second)
    blocker = await busy(one, first)
    waiting = ask(2)

    infer(other, waiting)
    await turns()
    assert second.batches == []
    first.release()
    await answered(blocker, waiting)

    assert waiting.tensors["Y"].tolist() == answer_of(2)


@on_loop
async def test_instances_of_one_model_share_too() -> None:
    instances = [Echo(), Echo()]
    servable = Yard().add("m", *instances)
    requests = [ask(value) for value in range(20)]
    for instance in instances:
        instance.hold()

    for request in requests:
        infer(servable, request)
        await turns(3)
    await until(lambda: sum(instance.running for instance in instances) == 1)
    for instance in instances:
        instance.release()
    await answered(*requests)

    assert [request.tensors["Y"].tolist() for request in requests] == [answer_of(value) for value in range(20)]


@on_loop
async def test_a_quick_model_does_not_run_inline_while_another_has_its_resource() -> None:
    yard = Yard()
    slow, quick = Echo(), Echo()
    holder = yard.add("slow", slow)
    blocker = await busy(holder, slow)
    inline = yard.add("quick", quick, text=INLINE, clients=1)
    request = ask(1)

    infer(inline, request)
    await turns()
    assert quick.batches == []
    slow.release()
    await answered(blocker, request)
    alone = ask(2)
    await until(lambda: holder.scheduler.is_idle and inline.scheduler.is_idle)
    infer(inline, alone)

    assert alone.is_answered, "now it runs inline, at once"


@on_loop
async def test_a_lost_instance_gives_its_resource_back() -> None:
    yard = Yard()
    hand, echo = Hand(), Echo()
    lost, other = yard.add("lost", hand, text=""), yard.add("other", echo)
    await lost.start()
    request, waiting = ask(1), ask(2)
    infer(lost, request)
    await until(lambda: hand.batches)
    infer(other, waiting)
    await turns()
    assert not waiting.is_answered

    hand.go()
    hand.batches[0].finish()  # as instances do whose process has died: with an error, but they do

    await answered(waiting)


@on_loop
async def test_who_waits_for_its_turn_is_busy_and_gives_up_when_it_is_unloaded() -> None:
    yard = Yard()
    echo, hand = Echo(), Hand()
    holder, waits = yard.add("holder", echo), yard.add("waits", hand, text="")
    await waits.start()
    blocker = await busy(holder, echo)
    request = ask(1)
    infer(waits, request)
    await turns()
    lane = waits.request_lanes[0]
    assert lane.is_busy
    assert not lane.is_deserted
    request.cancelled = True
    assert lane.is_deserted

    await waits.close()
    assert request.error.code is Code.UNAVAILABLE
    assert "was unloaded while" in request.error.message
    echo.release()
    await answered(blocker)
    assert hand.batches == []


@on_loop
async def test_a_model_that_asks_one_with_the_same_needs_gets_its_answer() -> None:
    yard = Yard()
    hand, echo = Hand(), Echo()
    caller = yard.add("caller", hand, text="")
    yard.add("called", echo)
    await caller.start()
    request = ask(1)
    infer(caller, request)
    await until(lambda: hand.batches)

    inner: InferRequest = ask(2, model="called")
    assert isinstance(inner, Asked)
    hand.server.infer(inner)
    await answered(inner)
    hand.batches[0].finish({"Y": np.array([[3, -3]], np.float32)})
    await answered(request)

    assert inner.tensors["Y"].tolist() == answer_of(2)
    assert request.tensors["Y"].tolist() == answer_of(3)


@on_loop
async def test_a_model_that_loads_another_lends_what_the_warmup_of_that_needs() -> None:
    yard = Yard()
    hand, warmed = Hand(), Echo()
    loader = yard.add("loader", hand)
    other = yard.add("other", warmed)
    await loader.start()
    blocker = ask(1)
    infer(loader, blocker)
    await until(lambda: hand.batches)

    warm = ask(2)
    infer(other, warm)
    await turns()
    assert warmed.batches == []
    for change in (hand.server.load("m", None, {}), hand.server.unload("m", dependents=False)):
        yard.changed = asyncio.Event()
        changing = asyncio.ensure_future(change)
        await answered(warm)
        yard.changed.set()
        await changing
        warm = ask(3)
        infer(other, warm)
        await turns()
        assert not warm.is_answered, "it holds its resource again"
    hand.batches[0].finish()
    await answered(blocker, warm)
