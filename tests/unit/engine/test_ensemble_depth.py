"""Ensembles in ensembles: as deep as may be, deeper, and what a stack without room costs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bident.engine.ensemble_members import MOST_NESTED
from bident.errors import Code, ServeError
from tests.unit.engine.engine_fakes import answered, ask, infer, on_loop
from tests.unit.engine.engine_site import Site, write_times
from tests.unit.engine.ensemble_site import states, write_ensemble
from tests.unit.engine.ensemble_stage import Stage, reached, step, values


def write_nest(site: Site, levels: int, *, innermost: str = "two", prefix: str = "e") -> str:
    """Ensembles of one step each, ``levels`` of them; returns the name of the outermost."""
    for level in range(1, levels + 1):
        inner = innermost if level == 1 else f"{prefix}{level - 1}"
        write_ensemble(site, f"{prefix}{level}", step(inner, "X=X", "Y=Y"))
    return f"{prefix}{levels}"


def nest(stage: Stage, levels: int) -> str:
    stage.ensemble(step("inner", "X=X", "Y=Y"), name="e1")
    for level in range(2, levels + 1):
        stage.ensemble(step(f"e{level - 1}", "X=X", "Y=Y"), name=f"e{level}")
    return f"e{levels}"


@on_loop
async def test_the_deepest_that_may_be_answers_and_one_deeper_is_refused(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "two", "2")
    outermost = write_nest(site, MOST_NESTED + 2)

    failed = await site.engine.start([outermost])

    assert "depends on 'e17' which has no loaded version" in failed[outermost].message
    assert "ensemble e17 contains ensembles nested deeper than 16 levels, counting itself" in failed[outermost].message
    assert await site.answer("e16") == [[2, -2]]


@on_loop
async def test_a_reload_far_below_makes_it_unready_with_the_reason(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "two", "2")
    outermost = write_nest(site, MOST_NESTED)
    await site.engine.start([outermost])
    write_nest(site, 2, innermost="three", prefix="other")
    write_times(site.models, "three", "3")

    write_ensemble(site, "e1", step("other2", "X=X", "Y=Y"))
    await site.engine.load("e1")

    error = site.no_answer(outermost)
    assert error.code is Code.UNAVAILABLE
    assert "ensemble 'e16' is not ready: it contains ensembles nested deeper than 16 levels" in error.message
    assert not site.engine.is_model_ready(outermost, "")
    assert await site.answer("e14") == [[3, -3]]
    assert set(states(site).values()) == {"READY"}


@on_loop
async def test_very_many_levels_are_refused_not_a_crash(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_times(site.models, "two", "2")

    failed = await site.engine.start([write_nest(site, 200)])

    assert "nested deeper than 16 levels" in states_reason(site, "e17")
    assert list(failed) == ["e200"]
    assert await site.answer("e16") == [[2, -2]]


def states_reason(site: Site, name: str) -> str:
    return site.engine.lifecycle.states(name)[1].reason


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("room", range(30, 200, 17))
@on_loop
async def test_an_answer_that_finds_no_room_on_the_stack_is_an_error_not_silence(room: int, fails: bool) -> None:
    stage = Stage()
    inner = stage.open("inner")
    outermost = nest(stage, 14)
    request = ask(1, model=outermost)
    infer(stage.models[outermost], request)
    await reached(inner)

    with little_room(room):
        if fails:
            inner.say(error=ServeError(Code.INTERNAL, "it broke"))
        else:
            inner.say([1, -1])
    await answered(request)

    (response,) = request.answers
    assert response.final
    if response.error is None:
        assert not fails
        assert values(request) == [[1, -1]]
    else:
        assert "it broke" in response.error.message or "could not be delivered" in response.error.message
    assert all(servable.scheduler.is_idle for servable in stage.models.values())


@contextmanager
def little_room(frames: int) -> Iterator[None]:
    """So many calls more may be nested inside."""
    depth, frame = 0, inspect.currentframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
