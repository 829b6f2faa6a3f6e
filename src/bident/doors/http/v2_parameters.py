"""The parameters of a v2 infer request, of its inputs and of its outputs. Rules and words are Triton's."""

from __future__ import annotations

from typing import Any

from bident.engine.shared_memory import SharedMemory, Window
from bident.errors import MalformedError, ServeError, invalid_arg
from bident.wire.infer import RESERVED_PREFIX, InferRequest
from bident.wire.shown import shown

INT64 = range(-(2**63), 2**63)
"""What an integer parameter of a request can be; larger ones become doubles."""
REGION = "shared_memory_region"


def apply_parameters(request: InferRequest, parameters: Any) -> bool:
    """Read the request's parameters into ``request``; returns whether outputs go to the binary part by default."""
    if type(parameters) is not dict:
        raise MalformedError(
            "failed to get request params.: attempt to get members for non-object: 'parameters' must be a JSON object"
        )
    custom = dict(parameters)
    binary = boolean("binary_data_output", custom.pop("binary_data_output", False))
    request.priority = unsigned("priority", custom.pop("priority", 0))
    request.timeout_us = unsigned("timeout", custom.pop("timeout", 0))
    request.sequence_start = boolean("sequence_start", custom.pop("sequence_start", False))
    request.sequence_end = boolean("sequence_end", custom.pop("sequence_end", False))
    sequence = custom.pop("sequence_id", 0)
    if type(sequence) is not str and (type(sequence) is not int or sequence < 0):
        raise misread("sequence_id", parameters, "string", "it must be that or an integer >= 0")
    request.sequence_id = sequence
    for key, value in custom.items():
        _check_parameter(key, value)
        if type(value) is int and value not in INT64:
            custom[key] = float(value)  # as Triton has it: 64-bit integers with a sign, or doubles
    request.parameters = custom or None
    return binary


def _check_parameter(key: str, value: Any) -> None:
    if key.startswith(RESERVED_PREFIX):
        raise invalid_arg(
            f"parameter keys starting with '{RESERVED_PREFIX}' are reserved for Triton usage and should not "
            f"be specified: rename {shown(key)}"
        )
    elif type(value) not in (str, int, float, bool):
        raise invalid_arg(
            f"parameter {shown(key)} has invalid type. It should be either 'bool', 'int', 'float' or 'string'"
        )


def boolean(key: str, value: Any) -> bool:
    """``value`` of the member ``key``, which is true or false. Raises INVALID_ARG."""
    if type(value) is not bool:
        raise MalformedError(
            f"Unable to parse {shown(key)}: attempt to access JSON non-boolean as boolean, got {shown(value)}"
        )
    return value


def unsigned(key: str, value: Any, verb: str = "parse") -> int:
    """``value`` of the member ``key``, which is a whole number >= 0. Raises INVALID_ARG; ``verb`` is Triton's there."""
    if type(value) is not int or value < 0:
        raise MalformedError(
            f"Unable to {verb} {shown(key)}: attempt to access JSON non-unsigned-integer as unsigned-integer, "
            f"got {shown(value)}"
        )
    return value


def window_of(parameters: dict[str, Any], memory: SharedMemory) -> Window:
    """The part of a region that the ``parameters`` of an input or output name."""
    region = parameters[REGION]
    if type(region) is not str:
        raise misread(REGION, parameters, "string", "it is the name of a registered region")
    offset = unsigned("shared_memory_offset", parameters.get("shared_memory_offset", 0))
    return memory.view(
        region, offset, unsigned("shared_memory_byte_size", parameters.get("shared_memory_byte_size", 0))
    )


def misread(key: str, item: Any, kind: str, hint: str) -> ServeError:
    """The error for the member ``key`` of ``item`` that is not there or is no ``kind``, in Triton's words."""
    if type(item) is dict and key in item:
        problem = f"attempt to access JSON non-{kind} as {kind}: {hint}, got {shown(item[key])}"
    else:
        problem = f"attempt to access non-existing object member '{key}': {hint}, got {shown(item)}"
    return MalformedError(f"Unable to parse '{key}': {problem}")
