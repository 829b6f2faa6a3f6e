"""What a request declares of a tensor, whatever the protocol: the limits, and the words when it cannot be."""

from __future__ import annotations

from typing import Any

from bident.errors import MalformedError, ServeError, invalid_arg
from bident.model.hints import closest
from bident.wire.datatypes import DATATYPES
from bident.wire.shown import shown

LIST_LIMIT = 1024
"""Up to this many elements that come one by one stay a list until their batch is joined."""
MOST_ITEMS = 4096
"""Inputs or outputs that one request may have."""
MAX_ELEMENTS = 2**63 - 1
MAX_DIMS = 64
"""As many as numpy has."""


def bad_shape(name: str, dims: list[Any]) -> ServeError:
    """The error for the shape ``dims`` of the input ``name``, which is none or too large."""
    if len(dims) > MAX_DIMS:
        return invalid_arg(
            f"Unable to parse 'shape': input {shown(name)} has more than {MAX_DIMS} dimensions: {shown(dims)}"
        )
    if all(type(dim) is int and dim >= 0 for dim in dims):
        return invalid_arg(
            f"input {shown(name)} has shape {shown(dims)}, which causes total element count to exceed maximum size "
            f"{MAX_ELEMENTS}"
        )
    return MalformedError(
        f"Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer: input "
        f"{shown(name)} contains one or more invalid dimensions: every one must be an integer >= 0, got {shown(dims)}"
    )


def bad_datatype(name: str, word: str) -> ServeError:
    """The error for the datatype ``word`` of the input ``name``, which there is not."""
    bare = word.upper().removeprefix("TYPE_")
    aliases = {"STRING": "BYTES", "FLOAT32": "FP32", "FLOAT": "FP32", "FLOAT64": "FP64", "DOUBLE": "FP64"}
    near = closest(aliases.get(bare, bare), DATATYPES)
    hint = f"it must be one of {', '.join(DATATYPES)}" if near is None else f"did you mean '{near}'?"
    return invalid_arg(f"invalid datatype for input {shown(name)}: got {shown(word)}; {hint}")
