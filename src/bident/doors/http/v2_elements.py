"""The elements of a JSON tensor: of the right type, of the right number, and what is said when they are not."""

from __future__ import annotations

from typing import Any

import numpy as np

from bident.doors.declared_tensors import LIST_LIMIT
from bident.errors import MalformedError, ServeError
from bident.wire.datatypes import BYTES, DATATYPES, DataType
from bident.wire.numbers import narrow, to_array
from bident.wire.shown import shown

MAX_NESTING = 100

INTEGER: frozenset[type] = frozenset({int})
NUMBER: frozenset[type] = frozenset({int, float})
ALLOWED: dict[str, frozenset[type]] = {
    name: NUMBER if name in ("FP16", "FP32", "FP64", "BF16") else INTEGER for name in DATATYPES
} | {"BOOL": frozenset({bool}), "BYTES": frozenset({str})}
"""The Python types that the elements of a datatype may have."""

_AT_ONCE = 65536
_EXPECTED = {INTEGER: "integers", NUMBER: "numbers", ALLOWED["BOOL"]: "true or false", ALLOWED["BYTES"]: "strings"}


def tensor_data(name: str, datatype: DataType, shape: tuple[int, ...], count: int, data: Any) -> Any:
    """The checked elements of a JSON tensor: an array of ``shape``, or for small ones a flat list.

    Raises INVALID_ARG naming the input when the elements are not of the datatype's kind, do not fit
    it, or are not ``count`` many.
    """
    if type(data) is not list:
        if isinstance(data, np.ndarray):
            _check_count(name, shape, count, data.size)
            return narrow(name, datatype, data).reshape(shape)
        hint = _string_hint(data) if isinstance(data, str) else ""
        raise MalformedError(
            f"Unable to parse 'data': attempt to access JSON non-array as array for input {shown(name)}{hint}"
        )
    allowed = ALLOWED[datatype.name]
    if len(data) > _AT_ONCE:
        data = _checked_in_parts(name, datatype, data)
    elif not allowed.issuperset(map(type, data)):
        data = _flatten(name, data)
        _refuse_types(name, datatype, data)
    if len(data) != count:
        _check_count(name, shape, count, len(data))
    if datatype is BYTES:
        data = [text.encode() for text in data]
    if count <= LIST_LIMIT:
        return data
    return to_array(name, datatype, data).reshape(shape)


def _string_hint(data: str) -> str:
    """What is probably meant by a string where an array belongs."""
    if data.lstrip().startswith("["):
        return "; it is a string that holds JSON: send the array itself"
    return "; it is one string: send an array, also of one element"


def refuse_elements(name: str, datatype: DataType, elements: list[Any]) -> None:
    """Raise INVALID_ARG if one of ``elements``, which are not nested, cannot be one of ``datatype``."""
    _refuse_types(name, datatype, elements)
    to_array(name, datatype, elements)


def _checked_in_parts(name: str, datatype: DataType, data: list[Any]) -> list[Any]:
    """A long list, flat and checked for types; between two parts other threads get their turn."""
    allowed = ALLOWED[datatype.name]
    flat: list[Any] = []
    for start in range(0, len(data), _AT_ONCE):
        part = data[start : start + _AT_ONCE]
        if not allowed.issuperset(map(type, part)):
            part = _flatten(name, part)
            _refuse_types(name, datatype, part)
        flat += part
    return flat


def _refuse_types(name: str, datatype: DataType, elements: list[Any]) -> None:
    allowed = ALLOWED[datatype.name]
    for value in elements:
        if type(value) not in allowed:
            raise _wrong_element(name, datatype, value)


def _check_count(name: str, shape: tuple[int, ...], count: int, given: int) -> None:
    if given != count:
        raise MalformedError(
            f"Unable to parse 'data': Shape does not match true shape of 'data' field: input {shown(name)} has shape "
            f"{list(shape)}, which is {count} elements, and {given} in 'data'"
        )


def _flatten(name: str, data: list[Any]) -> list[Any]:
    """All elements of nested lists, row-major. Iterative: depth is the client's choice."""
    for _ in range(MAX_NESTING):
        if not any(type(item) is list for item in data):
            return data
        data = [value for item in data for value in (item if type(item) is list else (item,))]
    raise MalformedError(f"Unable to parse 'data': input {shown(name)} is nested deeper than {MAX_NESTING} levels")


def _wrong_element(name: str, datatype: DataType, value: Any) -> ServeError:
    expected = _EXPECTED[ALLOWED[datatype.name]]
    hint = ""
    if isinstance(value, dict) and "b64" in value:
        hint = "; v2 has no base64 form: send raw bytes through the binary tensor extension"
    elif value is None:
        hint = "; JSON has no NaN: send missing values through the binary tensor extension"
    kind, read_as = _kinds(datatype)
    what = "JSON bytes array" if datatype is BYTES else "'data'"
    return MalformedError(
        f"Unable to parse {what}: attempt to access JSON non-{kind} as {read_as}: input {shown(name)} "
        f"is {datatype.name} and takes {expected}, got {shown(value)}{hint}"
    )


def _kinds(datatype: DataType) -> tuple[str, str]:
    """What Triton's JSON library calls the values that a datatype takes, and what it reads them as."""
    allowed = ALLOWED[datatype.name]
    if allowed is NUMBER:
        return "number", "double"
    if allowed is INTEGER:
        kind = "unsigned-integer" if datatype.name.startswith("U") else "signed-integer"
    else:
        kind = "boolean" if datatype.name == "BOOL" else "string"
    return kind, kind
