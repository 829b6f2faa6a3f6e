"""The log's two formats, its levels, and what it does with hostile text."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from bident.observe import log

ROOT = logging.getLogger("bident")
ALL_ON: dict[str, Any] = {"verbose": 1, "info": True, "warning": True, "error": True, "style": "default", "path": ""}
NOON = 1_700_000_000.25  # 2023-11-14 22:13:20 UTC


def record(level: int = logging.INFO, message: str = "hello %s", *args: object) -> logging.LogRecord:
    made = logging.LogRecord("bident.x", level, "/src/lifecycle.py", 41, message, args or ("you",), None)
    made.created, made.process = NOON, 6899
    return made


def written(path: Path, **options: Any) -> list[str]:
    """What a log in ``path`` holds after one message of each level."""
    log.configure(**{**ALL_ON, "path": str(path), **options})
    logger = logging.getLogger("bident.test")
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        logger.log(level, "at %s", logging.getLevelName(level))
    return path.read_text(encoding="utf-8").splitlines()


def test_the_default_format_is_tritons() -> None:
    line = log.TritonFormatter().format(record())

    assert line == 'I1114 22:13:20.250000 6899 lifecycle.py:41] "hello you"'


def test_the_other_format_has_an_iso_time_in_front() -> None:
    line = log.TritonFormatter(iso8601=True).format(record())

    assert line == '2023-11-14T22:13:20Z I 6899 lifecycle.py:41] "hello you"'


@pytest.mark.parametrize(
    ("level", "letter"),
    [(logging.DEBUG, "V"), (logging.INFO, "I"), (logging.WARNING, "W"), (logging.ERROR, "E"), (logging.CRITICAL, "F")],
)
def test_each_level_has_its_letter(level: int, letter: str) -> None:
    assert log.TritonFormatter().format(record(level)).startswith(f"{letter}1114")


def test_microseconds_always_have_six_digits() -> None:
    made = record()
    made.created = 1_700_000_000.000001

    assert re.match(r"I1114 22:13:20\.00000[01] ", log.TritonFormatter().format(made))


@pytest.mark.parametrize("text", ['a "quoted" word', "two\nlines", "tab\tand \x1b[31m colour", "\u20ac \u0444"])
def test_a_message_is_one_line_of_json_and_readable(text: str) -> None:
    line = log.TritonFormatter().format(record(logging.INFO, "%s", text))

    assert "\n" not in line
    assert "\x1b" not in line
    assert json.loads(line.split("] ", 1)[1]) == text
    assert all(character in line for character in text if ord(character) > 127)


def test_a_traceback_follows_and_cannot_pass_for_another_message() -> None:
    made = record(logging.ERROR, "failed%s", "")
    try:
        raise ValueError('no\nE1114 22:13:20.250000 6899 app.py:1] "all is well"\n\nend')
    except ValueError as error:
        made.exc_info = (ValueError, error, error.__traceback__)

    first, *rest = log.TritonFormatter().format(made).split("\n")

    assert first.endswith('"failed"')
    assert any("Traceback" in line for line in rest)
    assert any("all is well" in line for line in rest)
    assert all(line.startswith("  ") for line in rest)


@pytest.mark.parametrize(
    ("options", "letters"),
    [
        ({}, "VIWEF"),
        ({"verbose": 0}, "IWEF"),
        ({"verbose": 0, "info": False}, "WEF"),
        ({"verbose": 0, "warning": False}, "IEF"),
        ({"verbose": 0, "info": False, "warning": False, "error": False}, "F"),
        ({"verbose": 2, "info": False}, "VWEF"),
    ],
)
def test_each_level_can_be_turned_off_on_its_own(tmp_path: Path, options: dict[str, Any], letters: str) -> None:
    assert "".join(line[0] for line in written(tmp_path / "log", **options)) == letters


def test_a_log_file_is_added_to(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")

    lines = written(tmp_path / "log", style="ISO8601")

    assert lines[0] == "before"
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ [VIWEF] \d+ test_log\.py:\d+\] ", line) for line in lines[1:])


def test_text_that_is_no_unicode_is_written_and_not_lost(tmp_path: Path) -> None:
    log.configure(**{**ALL_ON, "path": str(tmp_path / "log")})

    logging.getLogger("bident.test").info("model %s", "\ud800!")

    assert r"model \ud800!" in (tmp_path / "log").read_text(encoding="utf-8")


def test_the_log_goes_to_standard_error_and_configuring_twice_writes_once(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(**ALL_ON)
    log.configure(**ALL_ON)

    logging.getLogger("bident.test").warning("once")

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count('"once"') == 1


def test_a_log_file_that_cannot_be_opened_is_the_callers_business(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file or directory"):
        log.configure(**{**ALL_ON, "path": str(tmp_path / "no" / "such" / "folder")})


@pytest.mark.parametrize("sign", ["\x9b", "\x85", "\x7f", "\u2028", "\u2029", "\u202e", "\u2066"])
def test_no_terminal_obeys_a_message_and_no_reader_ends_its_line(sign: str) -> None:
    text = f"a{sign}31mforged"
    line = log.TritonFormatter().format(record(logging.INFO, "%s", text))
    assert sign not in line
    assert len(line.splitlines()) == 1
    assert json.loads(line.split("] ", 1)[1]) == text


@pytest.mark.parametrize("sign", ["\x1b", "\x9b", "\x85", "\u2028", "\r"])
def test_no_terminal_obeys_a_traceback(sign: str) -> None:
    made = record(logging.ERROR)
    try:
        raise ValueError(f"a{sign}31mforged")
    except ValueError as error:
        made.exc_info = (ValueError, error, error.__traceback__)
    lines = log.TritonFormatter().format(made).split("\n")
    assert not any(sign in line for line in lines)
    assert lines[-1] == f"  ValueError: a\\u{ord(sign):04x}31mforged"
    assert all(line.startswith("  ") for line in lines[1:])


# Messages of several lines


def lines_of(path: Path, message: str) -> list[str]:
    log.configure(**{**ALL_ON, "path": str(path)})
    logging.getLogger("bident.test").error("%s", message)
    return [line.partition("] ")[2] or line for line in path.read_text(encoding="utf-8").splitlines()]


TRACEBACK = "ValueError: no\n\nAt:\n  model.py(6): execute\n"


@pytest.mark.parametrize("value", [None, "1", "", "yes"])
def test_messages_are_one_line_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES", raising=False)
    if value is not None:
        monkeypatch.setenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES", value)
    assert lines_of(tmp_path / "log", TRACEBACK) == [json.dumps(TRACEBACK)]


def test_tritons_variable_leaves_the_lines_of_messages_but_none_can_be_forged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES", "0")
    assert lines_of(tmp_path / "log", TRACEBACK) == ["ValueError: no", "  ", "  At:", "    model.py(6): execute"]
    forged = lines_of(tmp_path / "forged", "x\nI1130 13:18:58.662133 6899 lifecycle.py:41] all is well\r\x1b[2J")
    assert len(forged) == 2
    written = (tmp_path / "forged").read_text(encoding="utf-8")
    assert "\n  I1130 " in written
    assert written.endswith("\\u000d\\u001b[2J\n")
