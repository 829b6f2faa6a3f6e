"""A generate request: flat JSON to InferRequest (Triton's *generate* extension).

Every member of the body's object that bears an input's name is that tensor, as one value or a flat
array; every other one is a parameter of the request. A member ``parameters`` is an object with more
of both. Shapes are not in the body; they follow from the model's and from how many elements there are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import orjson
import simdjson

from bident.doors.http.hints import json_hint
from bident.doors.http.v2_elements import tensor_data
from bident.doors.http.v2_json import LARGE_BODY, trimmed
from bident.doors.http.v2_large import elements_of, keys_of, length_of, loads_large, plain
from bident.doors.http.v2_parameters import INT64
from bident.errors import MalformedError, ServeError, invalid_arg
from bident.model.config import ModelConfig, TensorSpec
from bident.wire.infer import InferInput, InferRequest, element_count
from bident.wire.shown import shown

NESTED = "parameters"
"""The member whose members count as if they were the body's own."""

Inputs = dict[str, TensorSpec]


def parse(
    model: tuple[str, str],
    config: ModelConfig,
    body: bytes,
    received_ns: int,
    amend: Callable[[ModelConfig, dict[str, Any]], None] | None = None,
) -> InferRequest:
    """The request in ``body`` to ``model`` (name and version, "" for the latest).

    ``amend`` may change the body's members before they are looked at. Raises INVALID_ARG with what is wrong and where.
    """
    document = _loads(body, config.inputs)
    if amend is not None:
        amend(config, document)
    request_id = document.get("id", "")
    if type(request_id) is not str:
        if "id" not in config.inputs:
            raise MalformedError(
                f"Unable to parse 'id': attempt to access JSON non-string as string, got {shown(request_id)}"
            )
        request_id = ""
    mapping = _Mapping(config)
    for key, value in document.items():
        if key == NESTED:
            mapping.take_nested(value)
        else:
            mapping.take(key, value)
    request = InferRequest(model[0], model[1], request_id, mapping.inputs, received_ns)
    request.parameters = mapping.parameters or None
    return request


class _Mapping:
    """What the members of a body are to one model."""

    def __init__(self, config: ModelConfig) -> None:
        self._specs = config.inputs
        self._lead = (-1,) if config.max_batch_size else ()
        self.inputs: dict[str, InferInput] = {}
        self.parameters: dict[str, Any] = {}

    def take(self, key: str, value: Any) -> None:
        """``value`` is the tensor ``key``, or the parameter of that name."""
        spec = self._specs.get(key)
        if spec is None:
            self.parameters[key] = _parameter(key, value)
        elif key in self.inputs:
            raise invalid_arg(f"input {shown(key)} already exists in request")
        else:
            self.inputs[key] = _tensor(spec, (*self._lead, *spec.dims), value)

    def take_nested(self, members: Any) -> None:
        """``members`` is the value of ``parameters``."""
        if NESTED in self._specs:
            raise invalid_arg(
                f"Keyword '{NESTED}' for nested schema also given as input tensor name: the generate routes cannot "
                f"fill that input, /infer can"
            )
        if type(members) is not dict:
            raise MalformedError(
                f"Expected JSON object for keyword: '{NESTED}': attempt to access JSON non-object as object, "
                f"got {shown(members)}"
            )
        try:
            for key, value in members.items():
                self.take(key, value)
        except ServeError as error:
            made = MalformedError if isinstance(error, MalformedError) else invalid_arg
            raise made(f"Converting keyword: '{NESTED}': {error.message}") from None


def _tensor(spec: TensorSpec, dims: tuple[int, ...], value: Any) -> InferInput:
    data = value if isinstance(value, (list, np.ndarray)) else [value]
    if isinstance(data, list) and list in map(type, data):
        _check_flat(spec.name, len(data), _leaves(data))
    shape = _shape(spec.name, dims, len(data))
    count = element_count(shape)
    return InferInput(spec.name, spec.datatype, shape, count, tensor_data(spec.name, spec.datatype, shape, count, data))


def _shape(name: str, dims: tuple[int, ...], count: int) -> tuple[int, ...]:
    """``dims`` with ``count`` elements: the innermost open dimension takes what the fixed ones leave, others are 1."""
    fixed = element_count(tuple(dim for dim in dims if dim != -1))
    left, rest = divmod(count, fixed)
    shape: list[int] = []
    for dim in reversed(dims):
        shape.append(left if dim == -1 else dim)
        if dim == -1:
            left = 1
    if rest or left != 1:
        raise invalid_arg(
            f"The schema can not convert input {shown(name)} to tensor with proper shape: {count} elements do not "
            f"fill {list(dims)}, which takes {f'a multiple of {fixed}' if -1 in dims else fixed}"
        )
    return tuple(reversed(shape))


def _parameter(key: str, value: Any) -> Any:
    kind = type(value)
    if kind is int and value not in INT64:
        return float(value)  # as Triton has it: parameters are 64-bit integers with a sign, or doubles
    if kind not in (str, int, float, bool):
        raise invalid_arg(
            f"parameter {shown(key)} has invalid type. It should be either 'bool', 'int', 'float' or 'string'; "
            f"the model has no input of that name"
        )
    return value


def _loads(body: bytes, specs: Inputs) -> dict[str, Any]:
    example = f'a JSON object such as {{"{next(iter(specs), "INPUT")}": ...}}'
    if not body.strip():
        raise MalformedError(f"failed to parse the request JSON buffer: the body is empty: POST {example}")
    try:
        document = orjson.loads(body) if len(body) < LARGE_BODY else loads_large(body, partial(_member, specs))
    except (ValueError, RuntimeError) as error:  # RuntimeError: simdjson's, of depth and of 65-bit integers
        bare = trimmed(body)
        if len(bare) < len(body):
            return _loads(bare, specs)
        raise MalformedError(f"failed to parse the request JSON buffer: {error}{json_hint(body)}") from None
    if type(document) is not dict:
        raise MalformedError(f"attempt to get members for non-object: the body must be {example}")
    return document


def _member(specs: Inputs, key: str, value: Any) -> Any:
    """A member of a large body, from simdjson: of what is no tensor only as much as shows what is wrong with it."""
    if key == NESTED and isinstance(value, simdjson.Object):
        return {inner: _value(specs.get(inner), value[inner]) for inner in keys_of(value)}
    return _value(specs.get(key), value)


def _value(spec: TensorSpec | None, value: Any) -> Any:
    if spec is None or not isinstance(value, simdjson.Array):
        return plain(value)
    elements = elements_of(spec.name, spec.datatype, value)
    count = length_of(value)
    _check_flat(spec.name, count, len(elements))
    return elements


def _check_flat(name: str, items: int, elements: int) -> None:
    if items != elements:
        raise MalformedError(
            f"Unable to parse 'data': Shape does not match true shape of 'data' field: input {shown(name)} takes "
            f"a flat array, and the {items} items of this one hold {elements} elements"
        )


def _leaves(data: list[Any]) -> int:
    """How many elements nested lists hold. Iterative: depth is the client's choice."""
    count = 0
    nested = [data]
    while nested:
        for item in nested.pop():
            if type(item) is list:
                nested.append(item)
            else:
                count += 1
    return count
