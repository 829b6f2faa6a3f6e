"""Work in threads that several can follow, and that ends when nobody does."""

from __future__ import annotations

import asyncio
import threading

import pytest

from bident.errors import Code, ServeError
from bident.text.store.jobs import Jobs


class Steps:
    """Work that takes a step when it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.runs = 0
        self.go = threading.Event()
        self.ended = threading.Event()
        self._error = error

    def __call__(self, report) -> None:
        self.runs += 1
        try:
            report("first")
            while not self.go.is_set():
                report.pause(0.01)
            for completed in range(1000):
                report("moving", digest="d", total=999, completed=completed)
            if self._error:
                raise self._error
            report("last")
        finally:
            self.ended.set()


async def names(following):
    return [status["status"] async for status in following]


def test_everyone_sees_the_same_and_the_work_is_done_once(run):
    async def story():
        jobs, work = Jobs(), Steps()
        first = jobs.follow("key", work)
        assert (await anext(first))["status"] == "first"
        second = asyncio.create_task(names(jobs.follow("key", work)))
        await asyncio.sleep(0)
        work.go.set()
        for seen in (["first", *await names(first)], await second):
            assert seen[0] == "first"
            assert seen[-1] == "last"
            assert set(seen) == {"first", "moving", "last"}
        assert work.runs == 1
        assert (await names(jobs.follow("key", work)))[-1] == "last"
        assert work.runs == 2

    run(story())


def test_a_slow_follower_keeps_little(run):
    async def story():
        jobs, work = Jobs(), Steps()
        work.go.set()
        following = jobs.follow("key", work)
        await anext(following)
        await asyncio.to_thread(work.ended.wait, 10)
        rest = [status async for status in following]
        assert len(rest) < 1000
        assert rest[-2]["completed"] == 999

    run(story())


def test_an_error_reaches_everyone(run):
    async def story():
        jobs, work = Jobs(), Steps(ServeError(Code.NOT_FOUND, "no such thing"))
        work.go.set()
        both = await asyncio.gather(
            names(jobs.follow("key", work)), names(jobs.follow("key", work)), return_exceptions=True
        )
        assert [str(each) for each in both] == ["no such thing"] * 2
        assert work.runs == 1

    run(story())


def test_work_ends_when_the_last_follower_leaves(run):
    async def story():
        jobs, work = Jobs(), Steps()
        first, second = jobs.follow("key", work), jobs.follow("key", work)
        await anext(first)
        await anext(second)
        await first.aclose()
        assert not work.ended.wait(0.1)
        await second.aclose()
        assert await asyncio.to_thread(work.ended.wait, 10)
        other = Steps()
        other.go.set()
        assert (await names(jobs.follow("key", other)))[-1] == "last"

    run(story())


def test_closing_ends_all_work(run):
    async def story():
        jobs, work = Jobs(), Steps()
        following = jobs.follow("key", work)
        await anext(following)
        await jobs.close()
        assert work.ended.is_set()
        with pytest.raises(ServeError, match="cancelled"):
            await names(following)

    run(story())


def test_too_much_at_once_is_refused(run):
    async def story():
        jobs, works = Jobs(), [Steps() for _ in range(32)]
        following = [jobs.follow(number, work) for number, work in enumerate(works)]
        for each in following:
            await anext(each)
        with pytest.raises(ServeError, match="try later") as caught:
            await anext(jobs.follow("one more", Steps()))
        assert caught.value.code is Code.UNAVAILABLE
        await jobs.close()

    run(story())
