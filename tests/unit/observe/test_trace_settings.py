"""Trace settings as the command line and clients give them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bident.errors import Code, ServeError, SettingsError
from bident.observe.trace_settings import TraceSetting, TraceStart, described, problem, read_changes
from bident.settings.values import Named


def start(*options: tuple[str, str, str]) -> TraceStart:
    return TraceStart.parse([Named(*option) for option in options])


def test_the_command_line_says_all_of_it() -> None:
    said = start(
        ("", "level", "TIMESTAMPS"),
        ("", "level", "TENSORS"),
        ("", "rate", "5"),
        ("", "count", "7"),
        ("", "mode", "triton"),
        ("triton", "file", "/tmp/t"),
        ("triton", "log-frequency", "3"),
    )

    assert said == TraceStart(TraceSetting(frozenset({"TIMESTAMPS", "TENSORS"}), 5, 7, 3), "/tmp/t")


def test_without_options_nothing_is_traced() -> None:
    assert start() == TraceStart(TraceSetting(frozenset(), 1000, -1, 0), "")


@pytest.mark.parametrize(("words", "level"), [(["MIN"], {"TIMESTAMPS"}), (["MAX"], {"TIMESTAMPS"}), (["OFF"], set())])
def test_the_levels_of_old(words: list[str], level: set[str]) -> None:
    assert start(*(("", "level", word) for word in words)).setting.level == level


@pytest.mark.parametrize(
    ("option", "fragment"),
    [
        (("", "mode", "opentelemetry"), "exporting spans is not built yet; --trace-config mode=triton"),
        (("", "mode", "jaeger"), "invalid value for trace mode option: jaeger"),
        (("", "lvl", "OFF"), "there is no 'lvl'; there are count, level, mode, rate"),
        (("triton", "url", "x"), "there is no 'triton,url'"),
        (("", "rate", "x"), "--trace-config rate=x: Unable to parse 'rate', got: x"),
        (("", "count", "-2"), "value is out of range"),
    ],
)
def test_what_the_command_line_cannot_say(option: tuple[str, str, str], fragment: str) -> None:
    with pytest.raises(SettingsError) as refused:
        start(option)

    assert fragment in refused.value.message


def test_options_of_the_other_mode_are_left_to_it() -> None:
    assert start(("opentelemetry", "url", "x")) == start()


def test_why_nothing_is_traced() -> None:
    assert problem(TraceSetting(rate=0), "f").startswith("sample rate must be non-zero: ")
    assert problem(TraceSetting(), "").startswith("trace file name is not given: ")
    assert problem(TraceSetting(), "f") == ""


def test_what_clients_get() -> None:
    assert described(TraceSetting(frozenset({"TENSORS", "TIMESTAMPS"}), 1, -1, 2), "f") == {
        "trace_level": ["TIMESTAMPS", "TENSORS"],
        "trace_rate": "1",
        "trace_count": "-1",
        "log_frequency": "2",
        "trace_file": "f",
        "trace_mode": "triton",
    }
    assert described(TraceSetting(), "")["trace_level"] == ["OFF"]


def test_what_clients_say() -> None:
    assert read_changes({"trace_level": ["TENSORS"], "trace_rate": "4294967295", "trace_count": -1}) == {
        "level": frozenset({"TENSORS"}),
        "rate": 4294967295,
        "count": -1,
    }
    assert read_changes({"trace_level": None, "log_frequency": None, "trace_mode": "triton"}) == {
        "level": None,
        "log_frequency": None,
    }
    assert read_changes({"trace_level": []}) == read_changes({"trace_level": ["OFF"]}) == {"level": frozenset()}


@pytest.mark.parametrize(
    ("changes", "code", "fragment"),
    [
        ({"trace_file": None}, Code.UNSUPPORTED, "trace file location can not be updated through network protocol"),
        ({"trace_mode": "opentelemetry"}, Code.UNSUPPORTED, "trace mode can not be updated"),
        ({"trace_level": ["OFF", "TENSORS"]}, Code.INVALID_ARG, "Expect only one trace level 'OFF' is specified"),
        ({"trace_level": ["ALL"]}, Code.INVALID_ARG, "there is no trace level 'ALL'"),
        ({"trace_level": "OFF"}, Code.INVALID_ARG, "attempt to access JSON non-array as array"),
        ({"trace_level": [1]}, Code.INVALID_ARG, "attempt to access JSON non-string as string"),
        ({"trace_rate": "x"}, Code.INVALID_ARG, "Unable to parse 'trace_rate', got: x"),
        ({"trace_rate": "٣"}, Code.INVALID_ARG, "Unable to parse 'trace_rate', got: ٣"),
        ({"trace_rate": True}, Code.INVALID_ARG, "attempt to access JSON non-string as string"),
        ({"trace_rate": 1.5}, Code.INVALID_ARG, "attempt to access JSON non-string as string"),
        ({"trace_rate": "4294967296"}, Code.INVALID_ARG, "value is out of range [ 0, 4294967295 ], got: 4294967296"),
        ({"trace_count": "-2"}, Code.INVALID_ARG, "Unable to parse 'trace_count'. Expecting value >= -1, got:-2"),
        ({"trace_count": "2147483648"}, Code.INVALID_ARG, "value is out of range [ -1, 2147483647 ]"),
        ({"trace_rates": "1"}, Code.INVALID_ARG, "there is no trace setting 'trace_rates'"),
    ],
)
def test_what_clients_cannot_say(changes: dict[str, Any], code: Code, fragment: str) -> None:
    with pytest.raises(ServeError) as refused:
        read_changes(changes)

    assert refused.value.code is code
    assert fragment in refused.value.message


@given(st.dictionaries(st.sampled_from(["trace_level", "trace_rate", "trace_count", "log_frequency"]), st.text()))
def test_any_text_is_read_or_refused(changes: dict[str, str]) -> None:
    with suppress(ServeError):
        read_changes(changes)
