"""Trace settings as the command line and clients give them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bident.errors import Code, ServeError, SettingsError
from bident.observe.span_settings import SpanSettings
from bident.observe.trace_settings import TraceSetting, TraceStart
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


def test_options_of_the_other_mode_change_nothing() -> None:
    assert start(("opentelemetry", "url", "http://h:1/v1/traces")) == start()


def test_the_mode_opentelemetry() -> None:
    said = start(
        ("", "mode", "opentelemetry"),
        ("", "level", "TIMESTAMPS"),
        ("", "rate", "0"),
        ("opentelemetry", "url", "http://h:1/v1/traces"),
        ("opentelemetry", "resource", "service.name=a"),
        ("opentelemetry", "resource", "b=c=d"),
        ("opentelemetry", "bsp_schedule_delay", "7"),
    )

    assert said.mode == "opentelemetry"
    assert said.spans == SpanSettings("http://h:1/v1/traces", {"service.name": "a", "b": "c=d"}, 2048, 7, 512)
    assert said.problem(said.setting) == ""


def test_why_nothing_is_traced() -> None:
    assert TraceStart(file="f").problem(TraceSetting(rate=0)).startswith("sample rate must be non-zero: ")
    assert TraceStart().problem(TraceSetting()).startswith("trace file name is not given: ")
    assert TraceStart(file="f").problem(TraceSetting()) == ""


def test_what_clients_get() -> None:
    assert TraceStart(file="f").described(TraceSetting(frozenset({"TENSORS", "TIMESTAMPS"}), 1, -1, 2)) == {
        "trace_level": ["TIMESTAMPS", "TENSORS"],
        "trace_rate": "1",
        "trace_count": "-1",
        "log_frequency": "2",
        "trace_file": "f",
        "trace_mode": "triton",
    }
    assert TraceStart().described(TraceSetting())["trace_level"] == ["OFF"]


def test_what_clients_get_of_the_mode_opentelemetry() -> None:
    spans = SpanSettings("https://name:secret@h/v1/traces", {"a": "b", "c": "d"})
    assert TraceStart(spans=spans).described(TraceSetting()) == {
        "trace_level": ["OFF"],
        "trace_rate": "1000",
        "trace_count": "-1",
        "trace_mode": "opentelemetry",
        "url": "https://h/v1/traces",
        "resource": "a=b,c=d",
        "bsp_max_queue_size": "2048",
        "bsp_schedule_delay": "5000",
        "bsp_max_export_batch_size": "512",
    }


def test_what_clients_cannot_say_of_spans() -> None:
    made = TraceStart(spans=SpanSettings())
    assert made.read_changes({"trace_mode": "opentelemetry", "log_frequency": None}) == {"log_frequency": None}
    for changes in ({"trace_mode": "triton"}, {"log_frequency": "5"}, {"trace_file": "t"}):
        with pytest.raises(ServeError) as refused:
            made.read_changes(changes)
        assert refused.value.code is Code.UNSUPPORTED


def test_what_clients_say() -> None:
    assert TraceStart().read_changes({"trace_level": ["TENSORS"], "trace_rate": "4294967295", "trace_count": -1}) == {
        "level": frozenset({"TENSORS"}),
        "rate": 4294967295,
        "count": -1,
    }
    assert TraceStart().read_changes({"trace_level": None, "log_frequency": None, "trace_mode": "triton"}) == {
        "level": None,
        "log_frequency": None,
    }
    assert (
        TraceStart().read_changes({"trace_level": []})
        == TraceStart().read_changes({"trace_level": ["OFF"]})
        == {"level": frozenset()}
    )


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
        TraceStart().read_changes(changes)

    assert refused.value.code is code
    assert fragment in refused.value.message


@given(st.dictionaries(st.sampled_from(["trace_level", "trace_rate", "trace_count", "log_frequency"]), st.text()))
def test_any_text_is_read_or_refused(changes: dict[str, str]) -> None:
    with suppress(ServeError):
        TraceStart().read_changes(changes)
