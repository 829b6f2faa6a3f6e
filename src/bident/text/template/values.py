"""What templates work with, as Go sees it: which values are true, how they are written, and their fields.

Values are None, bools, ints, floats, strings, lists, dicts (Go's maps, in their own order) and ``Struct``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from bident.errors import ServeError, invalid_arg

_AS_DOCUMENTS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_NON_STR_KEYS


@dataclass(frozen=True)
class Struct:
    """A value with known fields. It is written as ``document``, in JSON, as Ollama's own types are.

    One that is a map may be asked for any field, and gone over.
    """

    kind: str
    fields: Mapping[str, Any]
    document: Any
    is_map: bool = False


class Opening(str):
    """The beginning of the answer that the template is rendered for: after it, nothing more is written."""

    __slots__ = ()


def field_of(value: Any, name: str) -> Any:
    """``.name`` of ``value``: None for what a map does not hold. Raises INVALID_ARG for what has no such field."""
    if isinstance(value, Struct):
        if value.is_map or name in value.fields:
            return value.fields.get(name)
        raise _no_field(name, f"{value.kind}, which has {', '.join(value.fields)}")
    if isinstance(value, Mapping):
        return value.get(name)
    raise _no_field(name, kind_of(value))


def kind_of(value: Any) -> str:
    """What Go would call the type of ``value``, for messages."""
    if isinstance(value, Struct):
        return value.kind
    kinds = {bool: "bool", int: "int", float: "float64", list: "slice", dict: "map"}
    return "nil" if value is None else "string" if isinstance(value, str) else kinds.get(type(value), "value")


def is_true(value: Any) -> bool:
    """Go's truth: false, 0, nil and what is empty are not true."""
    return isinstance(value, Struct) or bool(value)


def json_of(value: Any) -> str:
    """``value`` as compact JSON, as Go's ``json.Marshal`` writes it, except that ``<``, ``>`` and ``&`` stay.

    Models have been trained on the plain characters, not on Go's escapes of them.
    """
    try:
        return orjson.dumps(value, default=_document, option=_AS_DOCUMENTS).decode()
    except (TypeError, ValueError, RecursionError):
        raise invalid_arg(
            "template: a value cannot be written as JSON: it is nested too deeply or is no text"
        ) from None


def _document(value: Any) -> Any:
    if isinstance(value, Struct):
        return value.document
    if isinstance(value, str):
        return str(value)
    raise TypeError


def written(value: Any) -> str:
    """``value`` as ``{{ value }}`` writes it (Go's ``fmt.Print``)."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list):
        is_json = bool(value) and all(isinstance(item, Struct) for item in value)
        return json_of(value) if is_json else f"[{' '.join(map(written, value))}]"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{written(key)}:{written(item)}" for key, item in value.items()) + "]"
    return json_of(value) if isinstance(value, Struct) else str(value)


def _number(value: float) -> str:
    """Go's ``%v`` of a float: the shortest digits, with an exponent from 21 digits on."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    shortest = repr(value)
    if abs(value) >= 1e21 or 0 < abs(value) < 1e-4:
        return shortest if "e" in shortest else f"{value:e}"
    return f"{value:f}".rstrip("0").rstrip(".") if "e" in shortest else shortest.removesuffix(".0")


def _no_field(name: str, kind: str) -> ServeError:
    return invalid_arg(f"template: can't evaluate field {name} in type {kind}")
