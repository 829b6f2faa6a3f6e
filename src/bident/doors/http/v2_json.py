"""KServe v2 JSON: request bodies to typed tensors.

Small bodies are read by orjson, and their tensors stay lists until the scheduler joins a batch.
Large ones are read by simdjson, whose number arrays become numpy arrays without ever being Python
lists. Both readers obey the same rules: a value of the wrong type is refused, never converted;
duplicate keys mean the last one; nested and flat data are the same in row-major order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import simdjson
from numpy.typing import NDArray

from bident.doors.http.hints import json_hint
from bident.engine.merge import to_array
from bident.errors import ServeError, invalid_arg
from bident.wire.datatypes import BYTES, DATATYPES, DataType

LARGE_BODY = 16 * 1024
"""From this many bytes on a body is read by simdjson."""

_MAX_KEYS = 64

_COUNTED_BYTES = 2 * (2**24 - 1)
"""A shorter body holds no array of more than 2**24 - 1 elements: each takes two bytes at least."""

_Plain = Callable[[Any], Any]

LIST_LIMIT = 1024
"""Up to this many elements a JSON tensor stays a list until its batch is joined."""

MAX_ELEMENTS = 2**63 - 1
_MAX_DEPTH = 100
_SHOWN = 100

_INTEGER: frozenset[type] = frozenset({int})
_NUMBER: frozenset[type] = frozenset({int, float})
_ALLOWED: dict[str, frozenset[type]] = {
    name: _NUMBER if name in ("FP16", "FP32", "FP64", "BF16") else _INTEGER for name in DATATYPES
} | {"BOOL": frozenset({bool}), "BYTES": frozenset({str})}
_WIDE = {"d": np.dtype("f8"), "u": np.dtype("u8"), "i": np.dtype("i8")}
"""simdjson's buffer kinds and what they hold."""

_EXPECTED = {_INTEGER: "integers", _NUMBER: "numbers", _ALLOWED["BOOL"]: "true or false", _ALLOWED["BYTES"]: "strings"}


def loads(body: bytes | memoryview) -> dict[str, Any]:
    """The request object in ``body``. Raises INVALID_ARG with the place and a hint when it is not JSON."""
    try:
        document = orjson.loads(body) if len(body) < LARGE_BODY else _loads_large(bytes(body))
    except (ValueError, RuntimeError) as error:  # RuntimeError: simdjson's, of depth and of 65-bit integers
        raise invalid_arg(f"failed to parse the request JSON buffer: {error}{json_hint(bytes(body))}") from None
    if type(document) is not dict:
        raise invalid_arg(
            "failed to parse the request JSON buffer: the body must be a JSON object such as "
            '{"inputs": [{"name": ..., "shape": [...], "datatype": ..., "data": [...]}]}'
        )
    return document


class _UnusualKeysError(ValueError):
    """simdjson finds a key by going through all of them, and the first of equal ones, where the last one counts."""


def _loads_large(body: bytes) -> Any:
    try:
        # A parser a request: one that is used again would keep the largest body's memory for ever.
        root = simdjson.Parser().parse(body)
        if not isinstance(root, simdjson.Object):
            return None
        plain = _plain if len(body) < _COUNTED_BYTES else _plain_uncounted
        return {key: _large_inputs(root[key], plain) if key == "inputs" else plain(root[key]) for key in _keys(root)}
    except (ValueError, RuntimeError):
        # Unusual keys, or what simdjson alone refuses, such as integers of more than 64 bits: orjson decides.
        return orjson.loads(body)


def _keys(item: Any) -> list[str]:
    keys = list(item.keys())
    if len(keys) > _MAX_KEYS or len(set(keys)) < len(keys):
        raise _UnusualKeysError
    return keys


def _plain(value: Any) -> Any:
    if isinstance(value, simdjson.Array):
        return value.as_list()
    return value.as_dict() if isinstance(value, simdjson.Object) else value


def _plain_uncounted(value: Any) -> Any:
    """What :func:`_plain` gives, for values that may hold arrays of any length.

    simdjson counts the elements of an array up to 2**24 - 1 only, and pysimdjson's ``as_list`` writes
    those beyond that number past the end of its list.
    """
    return orjson.loads(value.mini) if isinstance(value, simdjson.Array | simdjson.Object) else value


def _large_inputs(inputs: Any, plain: _Plain) -> Any:
    return [_large_input(item, plain) for item in inputs] if isinstance(inputs, simdjson.Array) else plain(inputs)


def _large_input(item: Any, plain: _Plain) -> Any:
    """An input object with its number array as numpy values. ``items()`` would make Python lists of everything."""
    if not isinstance(item, simdjson.Object):
        return plain(item)
    keys = _keys(item)
    members = {key: plain(item[key]) for key in keys if key != "data"}
    if "data" in keys:
        data, word = item["data"], members.get("datatype")
        datatype = DATATYPES.get(word) if isinstance(word, str) else None
        is_tensor = isinstance(data, simdjson.Array) and datatype is not None
        members["data"] = _numbers(data, datatype, plain) if is_tensor else plain(data)
    return members


def _numbers(data: Any, datatype: Any, plain: _Plain) -> Any:
    """The array's numbers as 64-bit numpy values; a list where they are not all of the right kind."""
    if datatype.name in ("BOOL", "BYTES"):
        return plain(data)
    whole = "u" if datatype.name == "UINT64" else "i"
    kind = "d" if _ALLOWED[datatype.name] is _NUMBER else whole
    try:
        return np.frombuffer(data.as_buffer(of_type=kind), _WIDE[kind])
    except (TypeError, ValueError):
        return plain(data)  # the ordinary path finds the culprit and names it


def tensor_data(name: str, datatype: DataType, shape: tuple[int, ...], count: int, data: Any) -> Any:
    """The checked elements of a JSON tensor: an array of ``shape``, or for small ones a flat list.

    Raises INVALID_ARG naming the input when the elements are not of the datatype's kind, do not fit
    it, or are not ``count`` many.
    """
    if type(data) is not list:
        if isinstance(data, np.ndarray):
            _check_count(name, shape, count, data.size)
            return _narrow(name, datatype, data).reshape(shape)
        hint = "; it is a string that holds JSON: send the array itself" if isinstance(data, str) else ""
        raise invalid_arg(f"Unable to parse 'data': attempt to access JSON non-array as array for input '{name}'{hint}")
    allowed = _ALLOWED[datatype.name]
    if not allowed.issuperset(map(type, data)):
        data = _flatten(name, data)
        wrong = next((value for value in data if type(value) not in allowed), None)
        if wrong is not None or None in data:
            raise _wrong_element(name, datatype, wrong)
    if len(data) != count:
        _check_count(name, shape, count, len(data))
    if datatype is BYTES:
        data = [text.encode() for text in data]
    if count <= LIST_LIMIT:
        return data
    return to_array(name, datatype, data).reshape(shape)


def _check_count(name: str, shape: tuple[int, ...], count: int, given: int) -> None:
    if given != count:
        raise invalid_arg(
            f"Unable to parse 'data': Shape does not match true shape of 'data' field: input '{name}' has shape "
            f"{list(shape)}, which is {count} elements, and {given} in 'data'"
        )


def _flatten(name: str, data: list[Any]) -> list[Any]:
    """All elements of nested lists, row-major. Iterative: depth is the client's choice."""
    for _ in range(_MAX_DEPTH):
        if not any(type(item) is list for item in data):
            return data
        data = [value for item in data for value in (item if type(item) is list else (item,))]
    raise invalid_arg(f"Unable to parse 'data': input '{name}' is nested deeper than {_MAX_DEPTH} levels")


def _narrow(name: str, datatype: DataType, wide: NDArray[Any]) -> NDArray[Any]:
    if wide.dtype == datatype.numpy:
        return wide
    if wide.dtype.kind == "f":
        with np.errstate(over="ignore"):
            narrow = wide.astype(datatype.numpy)
        fits = bool(np.isfinite(narrow).all())  # JSON has no infinity: one here is an overflow
    else:
        bounds = np.iinfo(datatype.numpy)
        fits = wide.size == 0 or (int(wide.min()) >= bounds.min and int(wide.max()) <= bounds.max)
        narrow = wide.astype(datatype.numpy)
    if not fits:
        to_array(name, datatype, wide.tolist())  # raises, in the words of the other path
    return narrow


def _wrong_element(name: str, datatype: DataType, value: Any) -> ServeError:
    expected = _EXPECTED[_ALLOWED[datatype.name]]
    hint = ""
    if isinstance(value, dict) and "b64" in value:
        hint = "; v2 has no base64 form: send raw bytes through the binary tensor extension"
    elif value is None:
        hint = "; JSON has no NaN: send missing values through the binary tensor extension"
    return invalid_arg(
        f"Unable to parse 'data': attempt to access JSON non-{_kind(datatype)} as {_kind(datatype)}: input '{name}' "
        f"is {datatype.name} and takes {expected}, got {shown(value)}{hint}"
    )


def shown(value: Any) -> str:
    """A value that a client sent, short enough for a message."""
    text = f"'{value}'" if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _kind(datatype: DataType) -> str:
    allowed = _ALLOWED[datatype.name]
    if allowed is _NUMBER:
        return "number"
    if allowed is _INTEGER:
        return "integer"
    return "boolean" if datatype.name == "BOOL" else "string"
