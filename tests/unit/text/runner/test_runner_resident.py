"""The line of a model, with children that exist only here: who is admitted, when it is loaded, when it leaves."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from fakes import FakeLoader, broken, model

from bident.errors import Code, ServeError
from bident.text.runner.limits import Limits
from bident.text.runner.resident import Resident
from bident.text.runner.wish import wish_of


class Line:
    """A resident and the requests for it."""

    def __init__(self, folder, limits: Limits | None = None, slots: int = 2) -> None:
        limits = limits or Limits()
        self.model = model(folder)
        self.limits = limits
        self.loader = FakeLoader(limits, slots)
        self.resident = Resident("m:latest", limits, self.loader)

    def wish(self, **options):
        return wish_of(self.model, options, self.limits)

    def enter(self, keep_alive=None, **options) -> asyncio.Task:
        return asyncio.create_task(self.resident.enter(self.wish(**options), keep_alive))

    async def entered(self, keep_alive=None, **options):
        return await asyncio.wait_for(self.enter(keep_alive, **options), 5)


async def turns(count: int = 10) -> None:
    """Let everything happen that can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def test_requests_are_admitted_in_their_order(tmp_path):
    async def run():
        line = Line(tmp_path)
        asking = [line.enter() for _ in range(5)]
        await turns()
        assert [task.done() for task in asking] == [True, True, False, False, False]
        loaded = asking[0].result()
        line.resident.leave(loaded)
        await turns()
        assert [task.done() for task in asking] == [True, True, True, False, False]
        assert (loaded.active, line.loader.started) == (2, 1)
        await line.resident.close()
        assert [type(task.exception()) for task in asking[3:]] == [ServeError] * 2

    asyncio.run(run())


def test_the_queue_is_bounded_and_its_refusal_is_ollamas(tmp_path):
    async def run():
        line = Line(tmp_path, Limits(max_queue=3), slots=1)
        await line.entered()
        waiting = [line.enter() for _ in range(3)]
        await turns()
        with pytest.raises(ServeError) as refused:
            await line.entered()
        assert refused.value.code is Code.UNAVAILABLE
        assert refused.value.message == "server busy, please try again.  maximum pending requests exceeded"
        assert not any(task.done() for task in waiting)
        await line.resident.close()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(run())


def test_a_request_that_goes_away_leaves_its_place_to_the_next(tmp_path):
    async def run():
        line = Line(tmp_path, slots=1)
        loaded = await line.entered()
        first, second = line.enter(), line.enter()
        await turns()
        first.cancel()
        line.resident.leave(loaded)  # in the same turn: the one that goes must not be given the slot
        await turns()
        assert second.result() is loaded
        assert loaded.active == 1

    asyncio.run(run())


def test_a_request_that_goes_away_just_when_it_is_admitted_gives_the_slot_back(tmp_path):
    async def run():
        line = Line(tmp_path, slots=1)
        loaded = await line.entered()
        first, second = line.enter(), line.enter()
        await turns()
        line.resident.leave(loaded)
        first.cancel()
        await turns()
        assert first.cancelled()
        assert second.result() is loaded
        assert loaded.active == 1

    asyncio.run(run())


@pytest.mark.parametrize("started", [False, True])
def test_a_load_is_given_up_when_all_who_wait_for_it_have_gone(tmp_path, started):
    async def run():
        line = Line(tmp_path)
        line.loader.may.clear()
        first, second = line.enter(), line.enter()
        await asyncio.sleep(0)
        if started:
            await turns()
        first.cancel()
        await turns()
        assert not second.done()
        second.cancel()
        await turns()
        line.loader.may.set()
        assert line.loader.loaded == []
        assert (await line.entered()).active == 1

    asyncio.run(run())


def test_growing_waits_for_those_at_work_and_goes_before_those_behind(tmp_path):
    async def run():
        line = Line(tmp_path)
        small = await line.entered(num_ctx=100)
        large, behind = line.enter(num_ctx=200), line.enter(num_ctx=100)
        await turns()
        assert not large.done()
        assert not behind.done()
        line.resident.leave(small)
        await turns()
        assert small.stopped
        assert large.result() is behind.result()
        assert large.result().plan.context_length == 200
        assert line.loader.started == 2

    asyncio.run(run())


def test_what_cannot_grow_stays_as_it_is(tmp_path):
    async def run():
        line = Line(tmp_path)
        small = await line.entered(num_ctx=100)
        line.resident.leave(small)
        line.loader.fails = ServeError(Code.UNAVAILABLE, "model requires more system memory")
        large, larger, behind = line.enter(num_ctx=200), line.enter(num_ctx=300), line.enter(num_ctx=100)
        await turns()
        assert [type(task.exception()) for task in (large, larger)] == [ServeError] * 2
        assert behind.result() is small
        assert line.loader.started == 2

    asyncio.run(run())


def test_one_failed_load_tells_all_who_want_the_same(tmp_path):
    async def run():
        line = Line(tmp_path)
        line.loader.may.clear()
        line.loader.fails = broken("unable to load model")
        asking = [line.enter() for _ in range(4)]
        await turns()
        line.loader.may.set()
        errors = await asyncio.gather(*asking, return_exceptions=True)
        assert {str(error) for error in errors} == {"unable to load model"}
        assert line.loader.started == 1
        line.loader.fails = None
        assert await line.entered()

    asyncio.run(run())


def test_an_accident_while_loading_is_an_error_too(tmp_path):
    async def run():
        line = Line(tmp_path)
        line.loader.fails = ValueError("surprise")
        with pytest.raises(ServeError, match="unable to load model 'm:latest': surprise"):
            await line.entered()

    asyncio.run(run())


def test_the_clock_starts_when_the_last_one_leaves(tmp_path):
    async def run():
        line = Line(tmp_path)
        first, second = await line.entered(0.02), await line.entered()
        line.resident.leave(first)
        assert line.resident._timer is None
        line.resident.leave(second)
        assert line.resident._timer is not None
        again = await line.entered()
        assert line.resident._timer is None
        line.resident.leave(again)
        await until(lambda: again.stopped)
        assert line.resident.loaded is None

    asyncio.run(run())


def test_keep_alive_belongs_to_the_model_and_the_last_to_say_it_wins(tmp_path):
    async def run():
        line = Line(tmp_path, Limits(keep_alive=500))
        line.resident.leave(await line.entered())
        assert line.resident.keep_alive == 500
        line.resident.leave(await line.entered(math.inf))
        assert line.resident.expires_at is None
        line.resident.leave(await line.entered())
        assert line.resident.keep_alive == math.inf
        loaded = await line.entered(0)
        line.resident.leave(loaded)
        await turns()
        assert loaded.stopped
        line.resident.leave(await line.entered())
        assert line.resident.keep_alive == 500
        await line.resident.close()

    asyncio.run(run())


def test_unloading_ends_an_idle_one_at_once_whatever_its_clock_says(tmp_path):
    async def run():
        line = Line(tmp_path)
        loaded = await line.entered(100)
        line.resident.leave(loaded)
        await line.resident.unload()
        assert loaded.stopped
        assert line.resident._timer is None
        await line.resident.unload()

    asyncio.run(run())


def test_a_crash_is_followed_by_a_new_child_for_those_who_wait(tmp_path):
    async def run():
        line = Line(tmp_path, Limits(backoff_seconds=0.01), slots=1)
        loaded = await line.entered()
        waiting = line.enter()
        await turns()
        loaded.process.die()
        assert line.resident.loaded is None
        await turns()
        assert waiting.result() is not loaded
        line.resident.leave(loaded)
        assert waiting.result().active == 1

    asyncio.run(run())


def test_a_model_that_is_to_leave_anyway_is_not_revived(tmp_path):
    async def run():
        line = Line(tmp_path)
        loaded = await line.entered(0)
        loaded.process.die()
        line.resident.leave(loaded)
        await turns()
        assert line.loader.started == 1

    asyncio.run(run())


def test_after_too_many_crashes_everybody_is_told_why(tmp_path):
    async def run():
        line = Line(tmp_path, Limits(crash_limit=2, backoff_seconds=0), slots=1)
        (await line.entered()).process.die("first")
        second = await line.entered()
        waiting = line.enter()
        await turns()
        second.process.die("second")
        await turns()
        said = r"model 'm:latest' has failed: it crashed 2 times within 300 seconds\. The last time: second\."
        with pytest.raises(ServeError, match=said):
            await waiting
        with pytest.raises(ServeError, match=said):
            await line.entered()
        await line.resident.unload()
        assert await line.entered()

    asyncio.run(run())


def test_a_child_that_dies_before_it_is_taken_over(tmp_path):
    async def run():
        line = Line(tmp_path, Limits(crash_limit=1))
        line.loader.may.clear()
        asking = line.enter()
        await turns()

        class Dead(type(line.loader)):
            async def __call__(self, resident, wish):
                loaded = await super().__call__(resident, wish)
                loaded.process.how = "stillborn"
                return loaded

        line.resident._loading.cancel()
        line.resident._load = Dead(line.limits)
        await turns()
        with pytest.raises(ServeError, match="stillborn"):
            await asyncio.wait_for(asking, 5)

    asyncio.run(run())
