"""What a client sent, short enough for a message about it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import orjson

_LENGTH = 100
_LISTED = 12


def shown(value: Any) -> str:
    """A value that came as JSON: text in single quotes, anything else as JSON, cut to about 100 characters."""
    if isinstance(value, str):
        return f"'{value[:_LENGTH]}...'" if len(value) > _LENGTH else f"'{value}'"
    # Cut before it is written too: the client chooses how long that takes.
    if isinstance(value, list):
        value = value[: _LENGTH + 1]
    elif isinstance(value, dict):
        value = dict(islice(value.items(), _LENGTH + 1))
    try:
        text = orjson.dumps(value).decode()
    except TypeError:  # more levels than can be written
        text = "[...]" if isinstance(value, list) else "{...}"
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}..."


def listed(words: Iterable[str]) -> str:
    """The words, each as :func:`shown` has it, and how many there are beyond the first dozen."""
    names = list(words)
    text = ", ".join(shown(name) for name in names[:_LISTED])
    return f"{text} and {len(names) - _LISTED} more" if len(names) > _LISTED else text
