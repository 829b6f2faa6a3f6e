"""The machine's own load, in the units of the metrics page."""

from __future__ import annotations

import pytest

from bident.observe.host import Host


def test_memory_is_in_bytes_and_no_more_is_used_than_there_is() -> None:
    load = Host().load()

    assert load.memory_total > 2**26
    assert 0 < load.memory_used < load.memory_total


@pytest.mark.parametrize(("percent", "share"), [(0.0, 0.0), (37.5, 0.375), (100.0, 1.0)])
def test_processor_load_is_a_share_of_all_cores(monkeypatch: pytest.MonkeyPatch, percent: float, share: float) -> None:
    host = Host()
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: percent)

    assert host.load().processor == share


def test_reading_the_load_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    intervals: list[object] = []
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: intervals.append(interval) or 0.0)

    Host().load()

    assert intervals == [None, None]


def test_it_is_measured_once_in_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = iter([1.0, 50.0, 90.0])
    now = [100.0]
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: next(loads))
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    host = Host(interval_seconds=2.0)

    assert host.load().processor == 0.5
    now[0] += 1.9
    assert host.load().processor == 0.5
    now[0] += 0.1
    assert host.load().processor == 0.9
