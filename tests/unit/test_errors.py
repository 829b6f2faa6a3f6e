"""Codes, messages, and the three kinds of error."""

from __future__ import annotations

import pytest

from bident.errors import Code, ConfigError, ServeError, SettingsError, invalid_arg


def test_the_codes_are_tritons_eight() -> None:
    assert [code.name for code in Code] == [
        "UNKNOWN",
        "INTERNAL",
        "NOT_FOUND",
        "INVALID_ARG",
        "UNAVAILABLE",
        "UNSUPPORTED",
        "ALREADY_EXISTS",
        "CANCELLED",
    ]


def test_an_error_reads_as_its_message() -> None:
    error = ServeError(Code.NOT_FOUND, "no such model")

    assert (error.code, error.message, str(error)) == (Code.NOT_FOUND, "no such model", "no such model")


@pytest.mark.parametrize("kind", [ConfigError, SettingsError])
def test_mistakes_in_declarations_are_invalid_arguments(kind: type[ConfigError | SettingsError]) -> None:
    error = kind("dims are missing")

    assert isinstance(error, ServeError)
    assert (error.code, error.message) == (Code.INVALID_ARG, "dims are missing")


def test_the_short_spelling_makes_the_plain_kind() -> None:
    error = invalid_arg("one row too many")

    assert type(error) is ServeError
    assert (error.code, error.message) == (Code.INVALID_ARG, "one row too many")
