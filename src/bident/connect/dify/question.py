"""What a person fills in to ask a model, and the request that is made of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from bident.connect.dify.names import Names
from bident.connect.dify.tensors import LONGEST_TEXT, MOST_ELEMENTS, Shape, Tensor, UnfitError

START, PREPARE = "start", "prepare"
"""Ids of the nodes that a request can be made from."""
FILE, BASE64 = "file", "base64"
"""How a picture comes: uploaded, or as text."""
_MOST_FIELDS = 16
"""An input of more numbers than these is one list instead of a field for each."""
_CHARACTERS_A_NUMBER = 26


@dataclass(frozen=True)
class Question:
    """``fields`` are variables of the start node. Exactly one of the others says what the HTTP node sends."""

    fields: tuple[dict[str, Any], ...]
    template: str = ""
    """JSON with the fields in it."""
    plan: dict[str, Any] | None = None
    """What the code node before it makes the request with."""
    file: str = ""
    """The field whose file is the request."""


def question(shape: Shape, requested: list[dict[str, Any]], pictures: str = FILE) -> Question:
    """How to ask a model of ``shape`` for the outputs ``requested`` (v2's ``outputs``).

    Raises UnfitError for an input that nobody can fill in.
    """
    names = Names()
    if sends_file(shape, pictures):
        (tensor,) = shape.inputs
        name = names.name(tensor.name)
        return Question((_file_field(name, tensor),), file=name)
    filled = [(tensor, _fields(tensor, names)) for tensor in shape.inputs]
    fields = tuple(field for _, some in filled for field in some)
    if all(_is_plain(tensor, some) for tensor, some in filled):
        return Question(fields, template=_template(shape, filled, requested))
    entries = [_entry(shape, tensor, some) for tensor, some in filled]
    return Question(fields, plan={"inputs": entries, "outputs": requested})


def sends_file(shape: Shape, pictures: str) -> bool:
    """Whether the request is nothing but a picture's bytes: it can then not name the outputs it wants."""
    return pictures == FILE and len(shape.inputs) == 1 and shape.inputs[0].is_picture


def _fields(tensor: Tensor, names: Names) -> list[dict[str, Any]]:
    """The fields that fill ``tensor``."""
    count = tensor.count
    if count is not None and count > MOST_ELEMENTS:
        raise UnfitError(f"nobody fills in the {count} elements of its input '{tensor.name}'")
    if tensor.is_number and count is not None and count <= _MOST_FIELDS and not tensor.optional:
        if count == 1:
            return [_field(names, tensor, tensor.name, "number")]
        of = f"of {count}"
        return [_field(names, tensor, f"{tensor.name} {at}", "number", f" {of}") for at in range(1, count + 1)]
    if tensor.datatype == "BOOL" and count == 1:
        return [_field(names, tensor, tensor.name, "select", options=["true", "false"])]
    if tensor.datatype == "BYTES" and count == 1:
        more = " (the file in base64)" if tensor.is_picture else ""
        return [_field(names, tensor, tensor.name, "paragraph", more, max_length=LONGEST_TEXT)]
    longest = LONGEST_TEXT if count is None else min(LONGEST_TEXT, 1000 + count * _CHARACTERS_A_NUMBER)
    what = f" ({'a list' if count is None else f'{count} values'}, JSON)"
    return [_field(names, tensor, tensor.name, "paragraph", what, max_length=longest)]


def _field(names: Names, tensor: Tensor, name: str, kind: str, more: str = "", **settings: Any) -> dict[str, Any]:
    """A variable of the start node. Labels are cut where Dify's form would not take them."""
    field = {"variable": names.name(name), "label": f"{name}{more}"[:48], "type": kind, "required": not tensor.optional}
    return {**field, "options": [], **settings}


def _file_field(name: str, tensor: Tensor) -> dict[str, Any]:
    return {
        "variable": name,
        "label": tensor.name,
        "type": "file",
        "required": True,
        "options": [],
        "allowed_file_types": ["image"],
        "allowed_file_extensions": [],
        "allowed_file_upload_methods": ["local_file", "remote_url"],
    }


def _is_plain(tensor: Tensor, fields: list[dict[str, Any]]) -> bool:
    """Whether what is filled in can stand in JSON as it is: numbers can; text may hold a quote."""
    return tensor.is_number and {field["type"] for field in fields} == {"number"}


def _template(shape: Shape, filled: list[tuple[Tensor, list[dict[str, Any]]]], requested: list[dict[str, Any]]) -> str:
    inputs = []
    for tensor, fields in filled:
        head = {"name": tensor.name, "shape": [*shape.lead, *tensor.dims], "datatype": tensor.datatype}
        data = ", ".join(f"{{{{#{START}.{field['variable']}#}}}}" for field in fields)
        inputs.append(f'{json.dumps(head)[:-1]}, "data": [{data}]}}')
    return f'{{"inputs": [{", ".join(inputs)}],\n "outputs": {json.dumps(requested)}}}'


def _entry(shape: Shape, tensor: Tensor, fields: list[dict[str, Any]]) -> dict[str, Any]:
    """How the code node makes ``tensor`` of its fields."""
    kind = fields[0]["type"]
    as_it_is = kind == "number" or (tensor.datatype == "BYTES" and tensor.count == 1)
    return {
        "name": tensor.name,
        "datatype": tensor.datatype,
        "lead": shape.lead,
        "shape": list(tensor.dims),
        "how": "choice" if kind == "select" else "value" if as_it_is else "list",
        "variables": [field["variable"] for field in fields],
        "optional": tensor.optional,
    }
