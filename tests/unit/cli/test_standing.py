"""What a server says of its models, as people read it."""

from __future__ import annotations

import time

import pytest

from bident.cli import standing

NOW = 1_796_054_592.0  # 2026-11-30T16:03:12Z


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("loading since 2026-11-30T16:03:00Z", "loading for 12 s"),
        ("loading since 2026-11-30T16:01:00Z", "loading for 2 min"),
        ("loading since 2026-11-30T12:03:12Z", "loading for 4 h"),
        ("loading since 2026-11-30T16:04:00Z", "loading for 0 s"),
        ("'m_0' is starting since 2026-11-30T16:03:10Z.\nIt exited", "'m_0' is starting for 2 s. It exited"),
        ("no file since yesterday", "no file since yesterday"),
        ("", ""),
    ],
)
def test_moments_become_durations(reason: str, expected: str) -> None:
    assert standing.remark(reason) == expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (
            "'m_0' exited with 1; the last lines it printed:\nTraceback:\n  File\nKeyError: 'x'\n",
            "'m_0' exited with 1; the last lines it printed: ... KeyError: 'x'",
        ),
        ("ValueError: no weights\n\nAt:\n  /r/m/1/model.py(3): initialize\n", "ValueError: no weights"),
        ("OSError: no hub\n\nLog in first.\n\nAt:\n  m.py(3): f\n", "OSError: no hub Log in first."),
        ("one\n\n", "one"),
        ("a" * 300, "a" * 300),
        (f"{'a' * 300}\nb\n{'c' * 300}", f"{'a' * 237}... ... {'c' * 237}..."),
        ("\n", ""),
    ],
)
def test_of_several_lines_the_telling_ones_are_kept(reason: str, expected: str) -> None:
    assert standing.gist(reason) == expected


ENTRIES = [
    {"name": "idle"},
    {"name": "well", "version": "1", "state": "READY"},
    {"name": "limping", "version": "2", "state": "READY", "reason": "1 of 2 instances: gone"},
    {"name": "slow", "version": "1", "state": "LOADING", "reason": "loading since 2026-11-30T16:03:00Z"},
    {"name": "tritons", "version": "1", "state": "LOADING"},
    {"name": "broken", "version": "1", "state": "UNAVAILABLE", "reason": "no file"},
    {"name": "put away", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
]


def test_models_are_told_apart() -> None:
    assert [entry["name"] for entry in standing.loading(ENTRIES)] == ["slow", "tritons"]
    assert [entry["name"] for entry in standing.failed(ENTRIES)] == ["broken"]
    assert [entry["name"] for entry in standing.impaired(ENTRIES)] == ["limping"]
    assert standing.lines(standing.failed(ENTRIES)) == ["  broken 1: no file"]
    assert standing.summary(standing.loading(ENTRIES)) == "slow 1 (for 12 s), tritons 1 (just begun)"
