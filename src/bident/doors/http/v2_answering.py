"""How a client wants its answer to a v2 infer request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from bident.doors.answers import Want
from bident.doors.declared_tensors import MOST_ITEMS
from bident.doors.http.v2_parameters import REGION, boolean, misread, unsigned, window_of
from bident.doors.shared_tensors import SharedInput
from bident.engine.shared_memory import SharedMemory, Window
from bident.errors import MalformedError, invalid_arg
from bident.wire.shown import shown


def write(document: dict[str, Any]) -> bytes:
    """An answer's JSON: numbers as short as they can be, NaN and infinities as null."""
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


@dataclass(frozen=True)
class OutputForm:
    """How the client wants one output: in the binary part or not, and as its ``classes`` best labels if > 0.

    With a ``window`` it is written there, and the answer has no data of it.
    """

    binary: bool = False
    classes: int = 0
    window: Window | None = None


@dataclass(frozen=True)
class Answering:
    """How the client wants its answer: per named output, and for outputs it did not name.

    ``shared``: what has to be read from shared memory before there can be one; ``write`` prints its JSON.
    """

    forms: dict[str, OutputForm]
    default: OutputForm
    shared: tuple[SharedInput, ...] = ()
    write: Callable[[dict[str, Any]], bytes] = write

    def want(self, name: str) -> Want:
        """How the output ``name`` is wanted, but for where in the answer its data stand."""
        form = self.forms.get(name, self.default)
        return form.classes if form.window is None else form.window


AS_JSON = OutputForm()
_AS_BINARY = OutputForm(binary=True)
JSON_ANSWER = Answering({}, AS_JSON)
BINARY_ANSWER = Answering({}, _AS_BINARY)


def forms_of(outputs: Any, memory: SharedMemory) -> dict[str, OutputForm]:
    """How the outputs that a request names are wanted, by name. Raises INVALID_ARG with what is wrong."""
    if type(outputs) is not list:
        raise MalformedError("Unable to parse 'outputs': attempt to access JSON non-array as array")
    if len(outputs) > MOST_ITEMS:
        raise invalid_arg(f"Unable to parse 'outputs': there are more than {MOST_ITEMS} outputs")
    forms: dict[str, OutputForm] = {}
    for item in outputs:
        name = item.get("name") if type(item) is dict else None
        if type(name) is not str:
            raise misread("name", item, "string", 'each output must be a JSON object such as {"name": "..."}')
        if name in forms:
            raise invalid_arg(f"output {shown(name)} already exists in request")
        forms[name] = _form(name, item.get("parameters"), memory)
    return forms


def _form(name: str, parameters: Any, memory: SharedMemory) -> OutputForm:
    if type(parameters) is not dict:  # as Triton has it: anything else is as good as none
        return AS_JSON
    binary = boolean("binary_data", parameters.get("binary_data", False))
    classes = unsigned("classification", parameters.get("classification", 0), "set")
    if REGION not in parameters:
        return OutputForm(binary, classes)
    for key, value in (("classification", classes), ("binary_data", binary)):
        if value:
            raise invalid_arg(f"Output can't set both '{REGION}' and '{key}': output {shown(name)}")
    return OutputForm(window=window_of(parameters, memory))
