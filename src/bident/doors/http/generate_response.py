"""An InferResponse to a generate answer: flat JSON (Triton's *generate* extension)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

from bident.doors.http.v2_response import flat
from bident.wire.infer import InferOutput, InferResponse

_FORM = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_SORT_KEYS


def write(members: dict[str, Any]) -> bytes:
    """``members`` as JSON, their keys sorted."""
    return orjson.dumps(members, option=_FORM)


def encode(response: InferResponse, write: Callable[[dict[str, Any]], bytes] = write) -> bytes:
    """An object with each output, each parameter of the response, and where they come from; keys are sorted.

    An output of one element is that value, any other a flat array. Where two have the same name the
    model's name, version and the id come first, then parameters. Raises INVALID_ARG when an output
    is text that is not UTF-8.
    """
    members: dict[str, Any] = {output.name: _value(output) for output in response.outputs}
    if response.parameters:
        members.update(response.parameters)
    members["model_name"] = response.model_name
    members["model_version"] = response.model_version
    if response.id:
        members["id"] = response.id
    return write(members)


def _value(output: InferOutput) -> Any:
    elements = flat(output.name, output.datatype, output.array)
    if len(elements) != 1:
        return elements
    first = elements[0]
    # Floats stay numpy's, whose shortest text they are written as; numpy has more integers than orjson knows.
    return first.item() if isinstance(first, np.integer | np.bool_) else first
