"""Durations as Go writes them, and ``keep_alive`` as Ollama's API document has it. Seconds throughout."""

from __future__ import annotations

import math
import re

from bident.errors import invalid_arg

_UNITS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)([^\d.]*)", re.ASCII)
_LONGEST_TEXT = 100
_FOREVER_SECONDS = 2**63 / 1e9
"""Go's durations are nanoseconds in 64 bits: what does not fit there has no end that anyone would see."""


def parse_duration(text: str) -> float:
    """``1h30m``, ``-1.5s``, ``300ms``, ``0``: what Go's ``time.ParseDuration`` takes. Raises INVALID_ARG."""
    shown = text[:_LONGEST_TEXT]
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    seconds, at = 0.0, 0
    while at < len(rest) and len(text) <= _LONGEST_TEXT:
        part = _PART.match(rest, at)
        if part is None:
            break
        number, unit = part.groups()
        if unit not in _UNITS:
            problem = f'unknown unit "{unit}"' if unit else "missing unit"
            raise invalid_arg(f'time: {problem} in duration "{shown}"; write it like 300ms, 90s, 5m or 1h30m')
        seconds += float(number) * _UNITS[unit]
        at = part.end()
    if not rest or at < len(rest):
        raise invalid_arg(f'time: invalid duration "{shown}"; write it like 300ms, 90s, 5m or 1h30m')
    return sign * seconds


def parse_keep_alive(value: object) -> float | None:
    """The ``keep_alive`` of a request: a number of seconds, or a text in Go's form.

    Negative is for ever (``math.inf``), 0 not at all; None means that the request has none. Raises INVALID_ARG.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _endless(parse_duration(value))
    if isinstance(value, int) and not isinstance(value, bool):  # of any size: not all of them are a float, too
        return _endless(value)
    if isinstance(value, float) and not math.isnan(value):
        return _endless(value)
    raise invalid_arg('keep_alive must be a number of seconds or a duration like "5m"; -1 keeps the model loaded')


def parse_keep_alive_setting(text: str) -> float:
    """``OLLAMA_KEEP_ALIVE``: as ``parse_keep_alive``, and a bare number is seconds. Raises INVALID_ARG."""
    bare = text.strip().strip("\"'")
    if re.fullmatch(r"[-+]?\d{1,18}", bare, re.ASCII):
        return _endless(int(bare))
    return _endless(parse_duration(bare))


def _endless(seconds: float) -> float:
    return math.inf if seconds < 0 or seconds >= _FOREVER_SECONDS else float(seconds)
