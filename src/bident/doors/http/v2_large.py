"""Large JSON bodies: number arrays become numpy arrays without ever being Python lists.

simdjson reads them, and only what a request can use is taken over: of an array whose length the
protocol bounds (inputs, outputs, dimensions) never more than shows that it is too long.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import orjson
import simdjson
from numpy.typing import NDArray

from bident.doors.declared_tensors import MOST_ITEMS
from bident.doors.http.v2_elements import ALLOWED, INTEGER, MAX_NESTING, NUMBER, refuse_elements
from bident.wire.datatypes import DATATYPES, DataType

_MAX_KEYS = 64
_AT_ONCE = 65536
"""Elements taken over in one go: between two of them other threads get their turn."""
_WIDE = {"d": np.dtype("f8"), "u": np.dtype("u8"), "i": np.dtype("i8")}
"""simdjson's buffer kinds and what they hold."""
_MOST_COUNTED = 2**24 - 1
"""simdjson counts the items of an array up to here."""

Member = Callable[[str, Any], Any]
"""Takes over a member of the body's object, given its key and simdjson's value."""


class _UnusualError(ValueError):
    """Keys that simdjson cannot be trusted with, or nesting that the ordinary reader has words for."""


def loads_large(body: bytes, member: Member | None = None) -> Any:
    """The document in ``body``, its number tensors as arrays of 64-bit values. Raises ValueError if it is not JSON.

    ``member`` says where its tensors are; without one, where an infer request has them.
    """
    # Millions of new objects, none of them garbage: to look at them over and over takes longer than making them.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _loads(body, member or _infer_member)
    finally:
        if collecting:
            gc.enable()


def _loads(body: bytes, member: Member) -> Any:
    try:
        # A parser a request: one that is used again would keep the largest body's memory for ever.
        root = simdjson.Parser().parse(body)
        if not isinstance(root, simdjson.Object):
            return None
        return {key: member(key, root[key]) for key in keys_of(root)}
    except (ValueError, RuntimeError):
        # Unusual keys, or what simdjson alone refuses, such as integers of more than 64 bits: orjson decides.
        return orjson.loads(body)


def _infer_member(key: str, value: Any) -> Any:
    return _inputs(value) if key == "inputs" else plain(value)


def keys_of(item: Any) -> list[str]:
    """The keys of an object: few, each once, and none with a NUL, at which simdjson ends the key it looks for."""
    keys = list(item.keys())
    if len(keys) > _MAX_KEYS or len(set(keys)) < len(keys) or any("\0" in key for key in keys):
        raise _UnusualError
    return keys


def plain(value: Any) -> Any:
    """Python's form of a value that is no tensor data; of a long array no more than its first items.

    Never ``as_list`` or ``mini``: simdjson counts up to 2**24 - 1 elements only, and the first writes
    those beyond that past the end of its list; the second may end the process.
    """
    if isinstance(value, simdjson.Array):
        return [plain(item) for item in islice(value, MOST_ITEMS + 1)]
    return {key: plain(value[key]) for key in keys_of(value)} if isinstance(value, simdjson.Object) else value


def _inputs(inputs: Any) -> Any:
    if not isinstance(inputs, simdjson.Array):
        return plain(inputs)
    return [_input(item) for item in islice(inputs, MOST_ITEMS + 1)]


def _input(item: Any) -> Any:
    """An input object with its data as an array of numbers, or as a flat list."""
    if not isinstance(item, simdjson.Object):
        return plain(item)
    keys = keys_of(item)
    members = {key: plain(item[key]) for key in keys if key != "data"}
    if "data" in keys:
        data, name, word = item["data"], members.get("name"), members.get("datatype")
        datatype = DATATYPES.get(word) if isinstance(word, str) else None
        is_tensor = isinstance(data, simdjson.Array) and isinstance(name, str) and datatype is not None
        members["data"] = elements_of(name, datatype, data) if is_tensor else plain(data)
    return members


def length_of(array: Any) -> int:
    """How many items simdjson's ``array`` has, those in nested arrays not counted."""
    size = len(array)
    return size if size < _MOST_COUNTED else sum(1 for _ in array)


def elements_of(name: Any, datatype: Any, data: Any) -> list[Any] | NDArray[Any]:
    """The elements of a tensor that simdjson's array ``data`` holds, row-major: wide numbers as an array.

    Raises INVALID_ARG naming the input when they are not of the datatype's kind.
    """
    allowed = ALLOWED[datatype.name]
    if allowed not in (NUMBER, INTEGER):
        return [element for part in _parts(data) for element in part]
    whole = "u" if datatype.name == "UINT64" else "i"
    kind = "d" if allowed is NUMBER else whole
    try:
        return np.frombuffer(data.as_buffer(of_type=kind), _WIDE[kind])
    except (TypeError, ValueError):
        return _name_culprit(name, datatype, data)


def _name_culprit(name: str, datatype: DataType, data: Any) -> list[Any]:
    """Raise INVALID_ARG that names the first element that is no number of ``datatype``."""
    for part in _parts(data):
        refuse_elements(name, datatype, part)
    raise _UnusualError


def _parts(data: Any, depth: int = 1) -> Iterator[list[Any]]:
    """The elements of nested arrays, row-major, some thousands at a time."""
    if depth > MAX_NESTING:
        raise _UnusualError
    elements = iter(data)
    while part := list(islice(elements, _AT_ONCE)):
        kinds = set(map(type, part))
        if simdjson.Array in kinds or simdjson.Object in kinds:
            yield from _flattened(part, depth)
        else:
            yield part


def _flattened(items: list[Any], depth: int) -> Iterator[list[Any]]:
    flat: list[Any] = []
    for item in items:
        if not isinstance(item, simdjson.Array):
            flat.append(plain(item))
            continue
        for part in _parts(item, depth + 1):
            flat += part
            if len(flat) >= _AT_ONCE:
                yield flat
                flat = []
    if flat:
        yield flat
