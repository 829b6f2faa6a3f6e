"""YAML, written: configuration for other programs.

Only writing is needed, and of plain values only: no library of the base install does it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_INDENT = "  "
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Keys that YAML 1.1 readers take for something else than a text."""
_NOT_PRINTABLE = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
"""What JSON allows in a text and YAML wants escaped."""
_LINES = re.compile(r"(?!\s)[\n\x20-\x7e\xa0-\u2027\u2030-\ud7ff\ue000-\ufefe\uff00-\ufffd]+(?<!\n\n)")
"""A text that can stand as it is, line by line: no tabs or other controls, no blank before its first letter."""
_POWER = re.compile(r"^(-?\d+)e")
"""1e-05, which YAML 1.1 readers take for a text; 1.0e-05 is a number to all."""


def to_yaml(value: Any) -> str:
    """``value`` (mappings, lists, texts, numbers, bools, None) as a YAML document in block style.

    Texts are in double quotes, where YAML reads what JSON does, so that none is taken for a number, a date or a
    bool; those of several lines stand as they are. Empty mappings and lists are ``{}`` and ``[]``. Raises TypeError
    for other values, ValueError for NaN.
    """
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _entry(f"{_key(key)}:", item)
    elif isinstance(value, list | tuple) and value:
        for item in value:
            first, *others = _lines(item)
            yield f"- {first}"
            yield from _indented(others)
    else:
        yield _scalar(value)


def _entry(key: str, item: Any) -> Iterator[str]:
    """``key`` with its value on the same line, or below it where that has several."""
    if isinstance(item, Mapping | list | tuple) and item:
        yield key
        yield from _indented(_lines(item))
    elif isinstance(item, str) and "\n" in item and _LINES.fullmatch(item):
        yield f"{key} {'|' if item.endswith(chr(10)) else '|-'}"
        yield from _indented(item.removesuffix("\n").split("\n"))
    else:
        yield f"{key} {_scalar(item)}"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (_INDENT + line if line else line for line in lines)


def _key(key: str) -> str:
    plain = _PLAIN_KEY.fullmatch(key) and key.lower() not in _WORDS
    return key if plain else _scalar(key)


def _scalar(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if isinstance(value, float):
        return _POWER.sub(r"\1.0e", text)
    return _NOT_PRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
