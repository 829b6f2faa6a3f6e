"""The kinds of value a setting can have: how a piece of text becomes a value, and what is refused.

Parsers raise ValueError with the reason; whoever knows the flag, variable or file adds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from bident.settings.patterns import compile_pattern

Pairs = dict[str, dict[str, str]]
"""Settings by the name they are for; those for no name in particular are under ``""``."""


@dataclass(frozen=True)
class Kind:
    """How the text of one occurrence is read, and, for repeatable settings, how occurrences add up."""

    metavar: str
    parse: Callable[[str], Any]
    collect: Callable[[list[Any]], Any] | None = None


class Named(NamedTuple):
    """``name,key=value``: one option of something that has a name (a backend, a cache, a trace mode)."""

    name: str
    key: str
    value: str


class Api(Enum):
    """What a request asks for, in the words of Triton's options: the groups in which APIs can be restricted."""

    HEALTH = "health"
    METADATA = "metadata"
    INFERENCE = "inference"
    SHARED_MEMORY = "shared-memory"
    MODEL_CONFIG = "model-config"
    MODEL_REPOSITORY = "model-repository"
    STATISTICS = "statistics"
    TRACE = "trace"
    LOGGING = "logging"


class RestrictedApi(NamedTuple):
    """APIs that are served only to requests with the header ``key: value``."""

    apis: frozenset[Api]
    key: str
    value: str


class RateLimitResource(NamedTuple):
    """How much of a resource there is; ``device`` None: on every device."""

    name: str
    amount: int
    device: int | None


_APIS = {api.value: api for api in Api}

TRUTH = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
"""What booleans are called, in lower case, in flags and in the parameters of models."""


def _boolean(text: str) -> bool:
    try:
        return TRUTH[text.lower()]
    except KeyError:
        raise ValueError(f"invalid value for bool option: {text}; expected true, on or 1, or false, off or 0") from None


def _verbosity(text: str) -> int:
    if text.lower() in ("true", "false"):
        return int(_boolean(text))
    return int(_whole(0, None)(text))


def _whole(minimum: int | None, maximum: int | None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        bounds = (f" of at least {minimum}" if minimum is not None else "") + (
            f" and at most {maximum}" if maximum is not None else ""
        )
        refusal = ValueError(f"Invalid option value. Got {text}; expected a whole number{bounds}")
        try:
            number = int(text)
        except ValueError:
            raise refusal from None
        if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
            raise refusal
        return number

    return parse


def _real(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError(f"Invalid option value. Got {text}; expected a number of at least 0")
    return number


def _path(text: str) -> Path:
    # Path("") is the working directory: never what an empty shell variable was meant to say.
    if not text:
        raise ValueError("the path is empty")
    return Path(text)


def _pattern(text: str) -> str:
    if text:
        compile_pattern(text)
    return text


def _named(text: str) -> Named:
    """``name,key=value``, or ``key=value`` for all; a comma after the ``=`` belongs to the value."""
    head, equals, value = text.partition("=")
    name, comma, key = head.partition(",")
    if not comma:
        name, key = "", name
    if not equals or not key or (comma and not name):
        raise ValueError(f"option format is '<name>,<setting>=<value>' or '<setting>=<value>'. Got {text}")
    return Named(name, key, value)


def _for_someone(text: str) -> Named:
    option = _named(text)
    if not option.name:
        raise ValueError(f"option format is '<name>,<setting>=<value>'. Got {text}: the name is missing")
    return option


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"option format is <setting>=<value>. Got {text}")
    return key, value


def _restricted(text: str) -> RestrictedApi:
    apis, colon, header = text.partition(":")
    key, equals, value = header.partition("=")
    if not colon or not equals or not key:
        raise ValueError(f"option format is '<api>[,<api>...]:<header>=<value>'. Got {text}")
    names = {name.strip() for name in apis.split(",")}
    if unknown := sorted(names.difference(_APIS)):
        raise ValueError(f"unknown restricted api '{unknown[0]}'; expected {', '.join(_APIS)}")
    return RestrictedApi(frozenset(_APIS[name] for name in names), key, value)


def _restricted_groups(groups: list[RestrictedApi]) -> tuple[RestrictedApi, ...]:
    seen: set[Api] = set()
    for group in groups:
        if twice := sorted(api.value for api in seen & group.apis):
            raise ValueError(f"restricted api '{twice[0]}' can not be specified in multiple config groups")
        seen |= group.apis
    return tuple(groups)


def _resource(text: str) -> RateLimitResource:
    parts = text.split(":")
    try:
        name, amount, *device = parts
        if not name or len(device) > 1 or int(amount) < 0:
            raise ValueError
        return RateLimitResource(name, int(amount), int(device[0]) if device else None)
    except ValueError:
        raise ValueError(f"option format is '<resource_name>:<count>[:<device>]'. Got {text}") from None


def _per_device(number: Callable[[str], Any], meaning: str) -> Callable[[str], tuple[int, Any]]:
    def parse(text: str) -> tuple[int, Any]:
        device, colon, value = text.partition(":")
        try:
            if not colon:
                raise ValueError
            return int(device), number(value)
        except ValueError:
            raise ValueError(f"option format is '<device id>:<{meaning}>'. Got {text}") from None

    return parse


def _by_name(options: list[Named]) -> Pairs:
    merged: Pairs = {}
    for option in options:
        merged.setdefault(option.name, {})[option.key] = option.value
    return merged


def _trace_level(text: str) -> str:
    return _one_of("OFF", "TIMESTAMPS", "TENSORS", "MIN", "MAX")(text.upper())


def _trace(text: str) -> Named:
    option = _named(text)
    return option._replace(value=_trace_level(option.value)) if option[:2] == ("", "level") else option


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"invalid argument. Got {text}; expected {' or '.join(choices)}")
        return text

    return parse


def choice(*choices: str) -> Kind:
    """One of a few words."""
    return Kind("|".join(choices), _one_of(*choices))


def whole(minimum: int | None = None, maximum: int | None = None) -> Kind:
    """A whole number, within bounds that are part of the range."""
    return Kind("<integer>", _whole(minimum, maximum))


BOOLEAN = Kind("<boolean>", _boolean)
VERBOSITY = Kind("<integer>", _verbosity)
COUNT = whole(0)
PORT = whole(0, 65535)
REAL = Kind("<number>", _real)
TEXT = Kind("<string>", str)
FILE = Kind("<path>", _path)
PATTERN = Kind("<regular expression>", _pattern)
NAMES = Kind("<string>", str, tuple)
FOLDERS = Kind("<path>", _path, tuple)
PAIRS = Kind("<setting>=<value>", _pair, dict)
OPTIONS = Kind("[<name>,]<setting>=<value>", _named, _by_name)
NAMED_OPTIONS = Kind("<name>,<setting>=<value>", _for_someone, _by_name)
TRACE_OPTIONS = Kind("[<mode>,]<setting>=<value>", _trace, tuple)
TRACE_LEVELS = Kind("<string>", _trace_level, tuple)
RESTRICTIONS = Kind("<apis>:<header>=<value>", _restricted, _restricted_groups)
RESOURCES = Kind("<name>:<count>[:<device>]", _resource, tuple)
DEVICE_BYTES = Kind("<device>:<bytes>", _per_device(int, "byte size"), dict)
DEVICE_FRACTIONS = Kind("<device>:<fraction>", _per_device(_real, "fraction"), dict)
