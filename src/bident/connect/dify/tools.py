"""The models as tools of Dify's agents: an OpenAPI file over the server's generate routes.

Dify makes a tool of each operation. It reads the first server, one content type, and a request body whose properties
are single values: a list is a text there, which Dify reads as JSON. So the routes are the flat ones of the *generate*
extension, one value or one flat list for each tensor, and not ``/infer``.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from bident.client import model_path
from bident.connect.dify.names import Names
from bident.connect.dify.tensors import MOST_ELEMENTS, Shape, Tensor, UnfitError, shape_of
from bident.connect.site import TensorModel

_LONGEST_ID = 64
_TYPES = {"BYTES": "string", "BOOL": "boolean"}
_WORDS = {"BYTES": "text", "BOOL": "boolean"}


def tools(models: list[TensorModel], server: str, *, with_key: bool = False) -> str:
    """The OpenAPI 3.0 document, as JSON, of one operation for each of ``models`` that an agent can use."""
    names = Names()
    paths: dict[str, Any] = {}
    for model in models:
        with suppress(UnfitError):
            paths[f"{model_path(model.name)}/generate"] = {"post": _operation(model, names)}
    document = {
        "openapi": "3.0.3",
        "info": {"title": "Models", "description": "Models of a tensor server.", "version": "1"},
        "servers": [{"url": server}],
        "paths": paths,
    }
    if with_key:
        document["components"] = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
        document["security"] = [{"key": []}]
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _operation(model: TensorModel, names: Names) -> dict[str, Any]:
    shape = shape_of(model)
    for tensor in (*shape.inputs, *shape.outputs):
        if (tensor.count or 0) > MOST_ELEMENTS:
            raise UnfitError(f"'{tensor.name}' has {tensor.count} elements, and no agent reads or writes so many")
    return {
        "operationId": names.name(f"ask_{model.name}", _LONGEST_ID),
        "summary": f"Ask the model {model.name}",
        "description": f"Ask the model {model.name}: {_list(shape.inputs)} in, {_list(shape.outputs)} out.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": _body(shape)}}},
        "responses": {
            "200": {"description": "The outputs", "content": {"application/json": {"schema": _answer(shape)}}},
            "default": {"description": "What is wrong", "content": {"application/json": {"schema": _ERROR}}},
        },
    }


_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}


def _list(tensors: tuple[Tensor, ...]) -> str:
    return ", ".join(f"{tensor.name} ({_about(tensor)})" for tensor in tensors)


def _about(tensor: Tensor) -> str:
    """What a tensor holds, in words that a language model can act on."""
    word = _WORDS.get(tensor.datatype, "number")
    if tensor.is_picture:
        return "a picture's file, JPEG or PNG, in base64"
    if tensor.count == 1:
        return f"a {word}"
    return f"a JSON list of {f'{tensor.count} {word}s' if tensor.count else f'{word}s'}"


def _body(shape: Shape) -> dict[str, Any]:
    """One row: the generate routes would read a longer list as several."""
    properties = {}
    for tensor in shape.inputs:
        value: dict[str, Any] = {"type": _type(tensor)}
        if tensor.count != 1:
            value = {"type": "array", "items": value}
            if tensor.count is not None:
                value |= {"minItems": tensor.count, "maxItems": tensor.count}
        properties[tensor.name] = {"description": _about(tensor), **value}
    required = [tensor.name for tensor in shape.inputs if not tensor.optional]
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _answer(shape: Shape) -> dict[str, Any]:
    """Of one element: that; of several: a flat list. NaN and infinities come as null."""
    properties: dict[str, Any] = {"model_name": {"type": "string"}, "model_version": {"type": "string"}}
    for tensor in shape.outputs:
        one = {"type": _type(tensor), "nullable": True}
        many = {"type": "array", "items": one}
        properties[tensor.name] = one if tensor.count == 1 else many if tensor.count else {"oneOf": [one, many]}
    return {"type": "object", "properties": properties}


def _type(tensor: Tensor) -> str:
    if tensor.datatype in _TYPES:
        return _TYPES[tensor.datatype]
    return "integer" if "INT" in tensor.datatype else "number"
