"""What clients change of the log holds at once, or not at all."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest

from bident.errors import Code, ServeError
from bident.observe import log
from bident.observe.log_settings import LogSettings

DEFAULTS = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What the log writes."""
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    log.configure(verbose=0, info=True, warning=True, error=True, style="default", path="")
    return written


def test_they_are_shown_in_the_protocols_order() -> None:
    assert list(LogSettings().as_dict().items()) == list(DEFAULTS.items())
    assert LogSettings(file="x", verbose=2).as_dict() == {**DEFAULTS, "log_file": "x", "log_verbose_level": 2}


def test_a_level_that_is_off_is_not_written(stream: io.StringIO) -> None:
    logger = logging.getLogger("bident.test")
    settings = LogSettings()
    settings.update({"log_warning": False, "log_verbose_level": 1})
    logger.warning("hidden")
    logger.debug("shown")
    settings.update({"log_warning": True, "log_verbose_level": 0})
    logger.warning("shown too")
    logger.debug("hidden too")

    assert [line.partition("] ")[2] for line in stream.getvalue().splitlines()] == ['"shown"', '"shown too"']


def test_the_format_changes(stream: io.StringIO) -> None:
    LogSettings().update({"log_format": "ISO8601"})
    logging.getLogger("bident.test").info("x")

    assert "T" in stream.getvalue().split(" ")[0]


def test_none_changes_nothing() -> None:
    assert LogSettings(info=False).update({"log_info": None, "log_file": None}) == {**DEFAULTS, "log_info": False}


@pytest.mark.parametrize(
    ("changes", "code", "fragment"),
    [
        ({"log_file": "x"}, Code.UNSUPPORTED, "log file location can not be updated through network protocol"),
        ({"log_info": 1}, Code.INVALID_ARG, "attempt to access JSON non-boolean as boolean"),
        ({"log_error": "true"}, Code.INVALID_ARG, "attempt to access JSON non-boolean as boolean"),
        ({"log_verbose_level": -1}, Code.INVALID_ARG, "non-unsigned-integer"),
        ({"log_verbose_level": True}, Code.INVALID_ARG, "non-unsigned-integer"),
        ({"log_verbose_level": 2**32}, Code.INVALID_ARG, "non-unsigned-integer"),
        ({"log_format": 1}, Code.INVALID_ARG, "attempt to access JSON non-string as string"),
        ({"log_format": "iso"}, Code.UNAVAILABLE, "invalid argument for --log_format, got: iso"),
        ({"log_level": 1}, Code.INVALID_ARG, "there is no log setting 'log_level'"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(changes: dict[str, Any], code: Code, fragment: str) -> None:
    settings = LogSettings()

    with pytest.raises(ServeError) as refused:
        settings.update({"log_warning": False, **changes})

    assert refused.value.code is code
    assert fragment in refused.value.message
    assert settings.as_dict() == DEFAULTS
