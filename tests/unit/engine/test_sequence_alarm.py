"""The timer of sequences rings early rather than late, and not at all when it was called off."""

from __future__ import annotations

import asyncio
from time import monotonic_ns

from bident.engine.sequence.alarm import Alarm
from tests.unit.engine.engine_fakes import on_loop, until

HOUR_NS = 3_600_000_000_000


class Bell:
    """Counts how often its alarm has rung."""

    def __init__(self) -> None:
        self.rung = 0
        self.alarm = Alarm(asyncio.get_running_loop(), self._ring)

    def _ring(self) -> None:
        self.rung += 1


@on_loop
async def test_it_rings_once_and_can_be_set_again() -> None:
    bell = Bell()
    for times in (1, 2):
        bell.alarm.set(monotonic_ns(), exactly=False)
        await until(lambda times=times: bell.rung == times, "the alarm")
        assert not bell.alarm.is_set


@on_loop
async def test_what_is_set_for_earlier_stays_and_what_is_set_for_later_gives_way() -> None:
    bell = Bell()
    bell.alarm.set(monotonic_ns() + HOUR_NS, exactly=False)
    bell.alarm.set(monotonic_ns(), exactly=False)
    bell.alarm.set(monotonic_ns() + HOUR_NS, exactly=False)
    bell.alarm.set(0, exactly=False)
    await until(lambda: bell.rung == 1, "the alarm")


@on_loop
async def test_exactly_it_is_moved_and_called_off() -> None:
    bell = Bell()
    bell.alarm.set(monotonic_ns(), exactly=False)
    bell.alarm.set(monotonic_ns() + HOUR_NS, exactly=True)
    assert bell.alarm.is_set
    bell.alarm.set(0, exactly=True)
    assert not bell.alarm.is_set
    await asyncio.sleep(0)
    assert bell.rung == 0
