"""The functions a template can call: Go's own (pkg.go.dev/text/template, "Functions") and those of Ollama.

``html``, ``js``, ``urlquery`` and ``call`` have no use in a prompt and are not there. ``and`` and ``or``
do not evaluate what they do not need: ``evaluation`` knows them by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import orjson

from bident.errors import ServeError, invalid_arg
from bident.text.template.values import Struct, is_true, json_of, kind_of, written

_VERB = re.compile(r"%([-+# 0]*)(\d*)(?:\.(\d*))?(.)", re.DOTALL)
_WIDEST = 1000
_NUMBERS = (int, float)
_TYPES = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "Record<string, any>",
}


def _equal(first: Any, *others: Any) -> bool:
    if not others:
        raise _wrong("eq", "missing argument for comparison")
    return any(_is_same(first, other) for other in others)


def _is_same(first: Any, second: Any) -> bool:
    """Go refuses to compare different kinds; a template that asks is answered no."""
    if isinstance(first, list | dict | Struct) or isinstance(second, list | dict | Struct):
        raise _wrong("eq", f"incomparable type {kind_of(first if isinstance(first, list | dict | Struct) else second)}")
    return isinstance(first, bool) is isinstance(second, bool) and bool(first == second)


def _comparison(name: str, holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(first: Any, second: Any) -> bool:
        are_numbers = all(isinstance(item, _NUMBERS) and not isinstance(item, bool) for item in (first, second))
        if not are_numbers and not (isinstance(first, str) and isinstance(second, str)):
            raise _wrong(name, f"cannot compare {kind_of(first)} with {kind_of(second)}")
        return holds(first, second)

    return compare


def _length(value: Any) -> int:
    """Strings count in bytes, as in Go."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list | dict):
        return len(value)
    raise _wrong("len", f"{kind_of(value)} has no length")


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(key) if isinstance(key, str) else None
        elif isinstance(value, list | str):
            items: Any = value.encode() if isinstance(value, str) else value
            value = items[_bound("index", key, len(items) - 1)]
        else:
            raise _wrong("index", f"can't index item of type {kind_of(value)}")
    return value


def _slice(value: Any, *bounds: Any) -> Any:
    """Strings are cut between bytes, as in Go; a character that is cut is left out."""
    if not isinstance(value, list | str) or len(bounds) > 2:
        raise _wrong("slice", f"can't slice item of type {kind_of(value)} by {len(bounds)} bounds")
    items: Any = value.encode() if isinstance(value, str) else value
    end = _bound("slice", bounds[1], len(items)) if len(bounds) > 1 else len(items)
    start = _bound("slice", bounds[0], end) if bounds else 0
    part = items[start:end]
    return part.decode(errors="ignore") if isinstance(part, bytes) else part


def _bound(function: str, key: Any, most: int) -> int:
    if isinstance(key, bool) or not isinstance(key, int):
        raise _wrong(function, f"{kind_of(key)} is no index")
    if not 0 <= key <= most:
        raise _wrong(function, f"index out of range: {key}")
    return key


def _print(*values: Any) -> str:
    """Spaces go between two values neither of which is a string, as ``fmt.Sprint`` puts them."""
    parts: list[str] = []
    for place, value in enumerate(values):
        if place and not isinstance(value, str) and not isinstance(values[place - 1], str):
            parts.append(" ")
        parts.append(written(value))
    return "".join(parts)


def _print_line(*values: Any) -> str:
    return " ".join(map(written, values)) + "\n"


def _print_format(pattern: Any, *values: Any) -> str:
    if not isinstance(pattern, str):
        raise _wrong("printf", "the format is a string")
    rest = list(values)

    def verb(found: re.Match[str]) -> str:
        flags, width, precision, letter = found.groups()
        if letter == "%":
            return "%"
        if not rest:
            return f"%!{letter}(MISSING)"
        if int(width or 0) > _WIDEST or int(precision or 0) > _WIDEST:
            raise _wrong("printf", f"{found[0]} is wider than {_WIDEST}")
        text = _verb(letter, rest.pop(0), precision)
        return (
            text.ljust(int(width or 0)) if "-" in flags else text.rjust(int(width or 0), "0" if "0" in flags else " ")
        )

    text = _VERB.sub(verb, pattern)
    return text + (f"%!(EXTRA {', '.join(map(written, rest))})" if rest else "")


def _verb(letter: str, value: Any, precision: str | None) -> str:
    is_number = isinstance(value, _NUMBERS) and not isinstance(value, bool)
    if letter in "feg" and is_number:
        return f"{float(value):.{int(precision or 6)}{letter}}"
    if letter == "d" and isinstance(value, int):
        return str(int(value))
    if letter == "c" and isinstance(value, int) and 0 <= value < 0xD800:
        return chr(value)
    if letter in "xX" and isinstance(value, str | int):
        digits = value.encode().hex() if isinstance(value, str) else f"{value:x}"
        return digits.upper() if letter == "X" else digits
    if letter == "q":
        return orjson.dumps(written(value)).decode()
    if letter in "svt":
        return written(value)[: int(precision)] if precision and isinstance(value, str) else written(value)
    return f"%!{letter}({kind_of(value)}={written(value)})"


def _current_date(*_: Any) -> str:
    return datetime.now().astimezone().strftime("%Y-%m-%d")


def _yesterday_date(*_: Any) -> str:
    return (datetime.now().astimezone() - timedelta(days=1)).strftime("%Y-%m-%d")


def typescript(value: Any) -> str:
    """The TypeScript type of a tool's parameter (a property of its schema), as gpt-oss wants its tools described."""
    schema = value.document if isinstance(value, Struct) else value
    if not isinstance(schema, Mapping):
        return "any"
    options = schema.get("anyOf")
    if isinstance(options, list) and options:
        return " | ".join(typescript(option) for option in options)
    types = schema.get("type")
    names = types if isinstance(types, list) else [types]
    return " | ".join(_typescript_name(name, schema) for name in names) or "any"


def _typescript_name(name: Any, schema: Mapping[str, Any]) -> str:
    if name == "array":
        item = schema.get("items")
        return f"{typescript(item)}[]" if isinstance(item, Mapping) and "type" in item else "any[]"
    return _TYPES.get(name, "any") if isinstance(name, str) else "any"


def _wrong(function: str, problem: str) -> ServeError:
    return invalid_arg(f"template: error calling {function}: {problem}")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "and": lambda first, *others: next(
        (value for value in (first, *others) if not is_true(value)), [first, *others][-1]
    ),
    "or": lambda first, *others: next((value for value in (first, *others) if is_true(value)), [first, *others][-1]),
    "not": lambda value: not is_true(value),
    "eq": _equal,
    "ne": lambda first, second: not _is_same(first, second),
    "lt": _comparison("lt", lambda first, second: first < second),
    "le": _comparison("le", lambda first, second: first <= second),
    "gt": _comparison("gt", lambda first, second: first > second),
    "ge": _comparison("ge", lambda first, second: first >= second),
    "len": _length,
    "index": _index,
    "slice": _slice,
    "print": _print,
    "println": _print_line,
    "printf": _print_format,
    "json": json_of,
    "currentDate": _current_date,
    "yesterdayDate": _yesterday_date,
    "toTypeScriptType": typescript,
}
