"""What is traced: the settings of ``--trace-config`` and of the *trace* protocol extension.

Values are Triton's (``docs/protocol/extension_trace.md``). There is a setting for all models, and each model may
have its own values for some of it; what is not set there follows what holds for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from bident.errors import Code, MalformedError, ServeError, SettingsError, invalid_arg
from bident.observe.span_settings import OPENTELEMETRY, SPAN_OPTIONS, SpanSettings

TRITON = "triton"
LEVELS = ("TIMESTAMPS", "TENSORS")
_OLD_LEVELS = {"MIN": "TIMESTAMPS", "MAX": "TIMESTAMPS"}
_MOST = 2**32 - 1
_MOST_COUNT = 2**31 - 1


class Option(Protocol):
    """One ``--trace-config``: ``name`` is the mode it is for, or empty."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str: ...


@dataclass(frozen=True)
class TraceSetting:
    """``level`` is noted of one request in ``rate``, of ``count`` in all (-1: no end), ``log_frequency`` to a file."""

    level: frozenset[str] = frozenset()
    rate: int = 1000
    count: int = -1
    log_frequency: int = 0

    def with_changes(self, changes: Mapping[str, Any]) -> TraceSetting:
        """This setting with other values under their attributes' names."""
        return replace(self, **changes)


class Picks:
    """Counts requests, and picks those that ``setting`` asks for."""

    def __init__(self, setting: TraceSetting) -> None:
        self._rate = setting.rate
        self._seen = 0
        self.left = setting.count
        """How many are still to be picked; -1: no end."""

    def takes_next(self) -> bool:
        """Whether the next one is one in so many, and not more than so many in all."""
        if not self.left or not self._rate:
            return False
        self._seen += 1
        if self._seen % self._rate:
            return False
        if self.left > 0:
            self.left -= 1
        return True


@dataclass(frozen=True)
class TraceStart:
    """What the command line says: the setting for all models, and where traces go.

    That is ``file`` in the mode ``triton``, and what ``spans`` name in the mode ``opentelemetry``, for which alone
    they are there.
    """

    setting: TraceSetting = field(default_factory=TraceSetting)
    file: str = ""
    spans: SpanSettings | None = None

    @classmethod
    def parse(cls, options: Iterable[Option], rate: int = TraceSetting.rate) -> TraceStart:
        """``rate``: the one that holds if none is given.

        Raises SettingsError where an option does not exist, or its value cannot be.
        """
        given = {(option.name, option.key): option.value for option in options}
        level = frozenset(
            _OLD_LEVELS.get(option.value, option.value) for option in options if (option.name, option.key) == _LEVEL
        )
        for (mode, key), value in given.items():
            if (mode, key) not in _KNOWN:
                raise SettingsError(_unknown(mode, key, value))
        mode = given.get(_MODE, TRITON)
        if mode not in (TRITON, OPENTELEMETRY):
            raise SettingsError(
                f'invalid value for trace mode option: {mode}. Available options are "triton" and "opentelemetry"'
            )
        changes = {"rate": rate} | {
            attribute: _started(read, key, given[key])
            for key, (attribute, read) in _NUMBERS_AT_START.items()
            if key in given
        }
        spans = SpanSettings.parse((each.key, each.value) for each in options if each.name == OPENTELEMETRY)
        setting = TraceSetting(level - {"OFF"}, **changes)
        return cls(setting, given.get(("triton", "file"), ""), spans if mode == OPENTELEMETRY else None)

    @property
    def mode(self) -> str:
        """``triton`` or ``opentelemetry``."""
        return TRITON if self.spans is None else OPENTELEMETRY

    def check_installed(self) -> None:
        """Raises UNAVAILABLE, naming the extra, if the mode needs packages that are not there."""
        if self.spans is not None:
            self.spans.check_installed()

    def problem(self, setting: TraceSetting) -> str:
        """Why nothing is traced though ``setting`` asks for it, in Triton's words, and the cure; empty if it is."""
        if self.spans is not None:
            return ""  # a rate of 0 is for requests that are part of a larger trace, and those alone
        if not setting.rate:
            return "sample rate must be non-zero: 1 is for every request"
        if not self.file:
            return "trace file name is not given: start the server with --trace-config triton,file=<path>"
        return ""

    def read_changes(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The values that a client sets, by attribute of :class:`TraceSetting`; None for those to be cleared.

        Raises UNSUPPORTED for what only the command line can say, INVALID_ARG for anything that cannot be.
        """
        if "trace_file" in document:
            raise ServeError(
                Code.UNSUPPORTED,
                "trace file location can not be updated through network protocol: it is --trace-config "
                "triton,file=<path>",
            )
        if document.get("trace_mode", self.mode) != self.mode:
            raise ServeError(
                Code.UNSUPPORTED, f"trace mode can not be updated through network protocol: it is '{self.mode}'"
            )
        changes: dict[str, Any] = {}
        for key, value in document.items():
            if key == "trace_mode":
                continue
            if key not in _READERS:
                raise invalid_arg(f"there is no trace setting '{key[:50]}': there are {', '.join(_READERS)}")
            if key == "log_frequency" and self.spans is not None and value is not None:
                raise ServeError(
                    Code.UNSUPPORTED, "log_frequency is about files, and there are none in this trace mode"
                )
            attribute, read = _READERS[key]
            changes[attribute] = None if value is None else read(key, value)
        return changes

    def described(self, setting: TraceSetting) -> dict[str, Any]:
        """The form that clients get: all values are strings, the level is a list of them."""
        said: dict[str, Any] = {
            "trace_level": [level for level in LEVELS if level in setting.level] or ["OFF"],
            "trace_rate": str(setting.rate),
            "trace_count": str(setting.count),
        }
        if self.spans is not None:
            return {**said, "trace_mode": OPENTELEMETRY, **self.spans.described()}
        said["log_frequency"] = str(setting.log_frequency)
        said["trace_file"] = self.file
        return {**said, "trace_mode": TRITON}


def _level(key: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list):
        raise MalformedError(f"attempt to access JSON non-array as array: '{key}' is a list, as in [\"TIMESTAMPS\"]")
    for level in value:
        if not isinstance(level, str):
            raise MalformedError(f"attempt to access JSON non-string as string: '{key}' is a list of strings")
        if level not in (*LEVELS, "OFF"):
            raise invalid_arg(f"there is no trace level '{level[:50]}': there are OFF, {', '.join(LEVELS)}")
    if "OFF" in value and len(value) > 1:
        raise invalid_arg("Expect only one trace level 'OFF' is specified")
    return frozenset(value) - {"OFF"}


def _number(lowest: int, highest: int) -> Callable[[str, Any], int]:
    def read(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise MalformedError(f"attempt to access JSON non-string as string: '{key}' is a number in a string")
        text = str(value).strip()
        digits = text.removeprefix("-")
        if not digits.isascii() or not digits.isdigit():
            raise invalid_arg(f"Unable to parse '{key}', got: {text[:50]}")
        if key == "trace_count" and text.startswith("-") and text != "-1":
            raise invalid_arg(f"Unable to parse '{key}'. Expecting value >= -1, got:{text[:50]}")
        if len(digits) > 10 or not lowest <= int(text) <= highest:
            raise invalid_arg(
                f"Unable to parse '{key}', value is out of range [ {lowest}, {highest} ], got: {text[:50]}"
            )
        return int(text)

    return read


_READERS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "trace_level": ("level", _level),
    "trace_rate": ("rate", _number(0, _MOST)),
    "trace_count": ("count", _number(-1, _MOST_COUNT)),
    "log_frequency": ("log_frequency", _number(0, _MOST)),
}

_LEVEL = ("", "level")
_NUMBERS_AT_START = {
    ("", "rate"): ("rate", _number(0, _MOST)),
    ("", "count"): ("count", _number(-1, _MOST_COUNT)),
    ("triton", "log-frequency"): ("log_frequency", _number(0, _MOST)),
}
_MODE = ("", "mode")
_KNOWN = {_LEVEL, _MODE, ("triton", "file"), *_NUMBERS_AT_START, *((OPENTELEMETRY, key) for key in SPAN_OPTIONS)}


def _started(read: Callable[[str, Any], int], option: tuple[str, str], text: str) -> int:
    try:
        return read(option[1], text)
    except ServeError as error:
        raise SettingsError(f"--trace-config {','.join(filter(None, option))}={text}: {error.message}") from None


def _unknown(mode: str, key: str, value: str) -> str:
    name = f"{mode},{key}" if mode else key
    known = [",".join(filter(None, option)) for option in sorted(_KNOWN)]
    return f"--trace-config {name}={value}: there is no '{name}'; there are {', '.join(known)}"
