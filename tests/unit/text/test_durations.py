from __future__ import annotations

import math

import pytest

from bident.errors import Code, ServeError
from bident.text.durations import parse_duration, parse_keep_alive, parse_keep_alive_setting


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("5m", 300),
        ("1h30m", 5400),
        ("300ms", 0.3),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("1.s", 1),
        ("-1m", -60),
        ("+2s", 2),
        ("10us", 1e-5),
        ("10\u00b5s", 1e-5),
        ("10\u03bcs", 1e-5),
        ("7ns", 7e-9),
    ],
)
def test_what_go_takes(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", 'invalid duration ""'),
        ("-", 'invalid duration "-"'),
        ("5", 'missing unit in duration "5"'),
        ("5m3", 'missing unit in duration "5m3"'),
        ("5x", 'unknown unit "x" in duration "5x"'),
        ("5 m", 'unknown unit " m"'),
        ("soon", 'invalid duration "soon"'),
        ("m5", "invalid duration"),
        ("..5s", "invalid duration"),
        ("\u0665s", "invalid duration"),
        ("1h" * 1000, "invalid duration"),
    ],
)
def test_what_go_refuses(text, problem):
    with pytest.raises(ServeError, match=problem) as refused:
        parse_duration(text)
    assert refused.value.code is Code.INVALID_ARG
    assert len(refused.value.message) < 300


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (0, 0),
        (0.0, 0),
        (10, 10),
        (2.5, 2.5),
        (-1, math.inf),
        ("-1s", math.inf),
        ("5m", 300),
        ("0", 0),
        (10**400, math.inf),
        (1e300, math.inf),
        (math.inf, math.inf),
        ("9999999999h", math.inf),
    ],
)
def test_keep_alive(value, seconds):
    assert parse_keep_alive(value) == seconds


@pytest.mark.parametrize("value", [True, [], {}, math.nan, b"5m"])
def test_keep_alive_of_a_wrong_type(value):
    with pytest.raises(ServeError, match="keep_alive must be a number of seconds or a duration"):
        parse_keep_alive(value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("300", 300), ("-1", math.inf), (' "24h" ', 86400), ("0", 0), ("5m", 300)]
)
def test_the_setting_may_be_a_bare_number(text, seconds):
    assert parse_keep_alive_setting(text) == seconds
