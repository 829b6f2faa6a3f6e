"""Ollama's request bodies as requests to the text engine (Ollama's API reference, ``docs/api.md``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bident.errors import Code, ServeError, invalid_arg
from bident.text.doors.fields import Fields
from bident.text.doors.images import decode_image
from bident.text.durations import parse_keep_alive
from bident.wire.shown import shown
from bident.wire.text import EmbedRequest, Message, TextRequest, ToolCall

_MOST_TOP_LOGPROBS = 20
_THINK_LEVELS = ("low", "medium", "high", "max")


def generate_request(fields: Fields) -> TextRequest:
    """The request in the body of ``/api/generate``. Raises INVALID_ARG and, where no model is named, NOT_FOUND."""
    model = fields.text("model")
    if not model:
        raise ServeError(Code.NOT_FOUND, "model '' not found: name one in the field 'model'")
    template = fields.text("template")
    context = _tokens(fields, "context")
    system = fields.text_if_given("system")
    raw = fields.flag("raw")
    if raw and (template or context or system):
        raise invalid_arg("raw mode does not support template, system, or context")
    return TextRequest(
        model=model,
        prompt=fields.text("prompt"),
        suffix=fields.text("suffix"),
        system=system or None,
        template=template or None,
        raw=raw,
        images=_images(fields),
        context=context,
        **_shared(fields),
    )


def chat_request(fields: Fields) -> TextRequest:
    """The request in the body of ``/api/chat``. Raises INVALID_ARG."""
    model = required_model(fields)
    messages = [message(each) for each in fields.objects("messages")]
    return TextRequest(model=model, messages=messages, tools=_tools(fields), **_shared(fields))


def embed_request(fields: Fields) -> EmbedRequest:
    """The request in the body of ``/api/embed``. Raises INVALID_ARG; for ``prompt``, that it is ``input`` here."""
    model = required_model(fields)
    given = fields.raw("input")
    if given is None and fields.raw("prompt") is not None:
        raise invalid_arg("/api/embed takes 'input', not 'prompt'; 'prompt' is for /api/embeddings")
    inputs = [given] if isinstance(given, str) and given else given or []
    if not isinstance(inputs, list) or not all(isinstance(each, str) for each in inputs):
        raise invalid_arg(f"invalid input type: input must be a string or a list of strings, not {shown(given)}")
    return EmbedRequest(
        model=model,
        inputs=inputs,
        truncate=fields.flag("truncate", True),
        dimensions=fields.whole("dimensions", 0, 0),
        options=options(fields),
        keep_alive=parse_keep_alive(fields.raw("keep_alive")),
    )


def embeddings_request(fields: Fields) -> EmbedRequest:
    """The request in the body of ``/api/embeddings``, the older form: one text, not normalised. Raises INVALID_ARG."""
    model = required_model(fields)
    if fields.raw("prompt") is None and fields.raw("input") is not None:
        raise invalid_arg("/api/embeddings takes 'prompt', not 'input'; 'input' is for /api/embed")
    prompt = fields.text("prompt")
    return EmbedRequest(
        model=model,
        inputs=[prompt] if prompt else [],
        normalise=False,
        options=options(fields),
        keep_alive=parse_keep_alive(fields.raw("keep_alive")),
    )


def required_model(fields: Fields) -> str:
    """The model, which some clients call ``name``. Raises INVALID_ARG in Ollama's words."""
    model = fields.text("model") or fields.text("name")
    if not model:
        raise invalid_arg("model is required")
    return model


def options(fields: Fields) -> Mapping[str, Any]:
    """The options, as they were sent; the engine knows their types."""
    found = fields.object("options")
    return {} if found is None else {name: value for name, value in found.values.items() if value is not None}


def _shared(fields: Fields) -> dict[str, Any]:
    """What ``/api/generate`` and ``/api/chat`` have in common."""
    fields.refuse("_debug_render_only", "this server does not show rendered prompts")
    return {
        "format": _format(fields),
        "think": think(fields),
        "options": options(fields),
        "logprobs": fields.flag("logprobs"),
        "top_logprobs": _top_logprobs(fields),
        "truncate": fields.flag("truncate", True),
        "shift": fields.flag("shift", True),
        "keep_alive": parse_keep_alive(fields.raw("keep_alive")),
    }


def think(fields: Fields) -> bool | str | None:
    """Whether and how hard the model thinks first; None as the model does by itself. Raises INVALID_ARG."""
    value = fields.raw("think")
    if value is None or isinstance(value, bool) or (isinstance(value, str) and value in _THINK_LEVELS):
        return value
    raise fields.wrong("think", 'true, false, "low", "medium", "high" or "max"')


def _format(fields: Fields) -> str | Mapping[str, Any] | None:
    value = fields.raw("format")
    if value is None or value == "":
        return None
    if value == "json":
        return "json"
    if isinstance(value, dict):
        return value
    raise invalid_arg(f'invalid format: {shown(value)}; expected "json" or a valid JSON Schema object')


def _top_logprobs(fields: Fields) -> int:
    value = fields.whole("top_logprobs", 0, -(2**31))
    if not 0 <= value <= _MOST_TOP_LOGPROBS:
        raise invalid_arg(f"top_logprobs must be between 0 and {_MOST_TOP_LOGPROBS}, not {value}")
    return value


def _tokens(fields: Fields, name: str) -> tuple[int, ...]:
    found = fields.elements(name, "a list of tokens")
    if not all(type(each) is int for each in found):
        raise fields.wrong(name, "a list of tokens, which are whole numbers")
    return tuple(found)


def _images(fields: Fields) -> list[bytes]:
    return [
        decode_image(image, f"{fields.path('images')}[{index}]")
        for index, image in enumerate(fields.elements("images"))
    ]


def message(fields: Fields) -> Message:
    """One message of a conversation. Raises INVALID_ARG."""
    role = fields.text("role")
    if not role:
        raise invalid_arg(f"{fields.path('role')} is required: system, user, assistant or tool")
    return Message(
        role=role,
        content=fields.text("content"),
        thinking=fields.text("thinking"),
        images=_images(fields),
        tool_calls=[_tool_call(each) for each in fields.objects("tool_calls")],
        tool_name=fields.text("tool_name") or fields.text("name"),
        tool_call_id=fields.text("tool_call_id"),
    )


def _tool_call(fields: Fields) -> ToolCall:
    function = fields.object("function")
    if function is None:
        raise invalid_arg(f"{fields.path('function')} is required")
    arguments = function.object("arguments")
    return ToolCall(fields.text("id"), function.text("name"), {} if arguments is None else arguments.values)


def _tools(fields: Fields) -> list[Mapping[str, Any]]:
    return [checked_tool(each) for each in fields.objects("tools")]


def checked_tool(fields: Fields) -> Mapping[str, Any]:
    """A tool in OpenAI's form, which is Ollama's too. Raises INVALID_ARG where its function has no name."""
    fields.choice("type", ("function",), "function")
    function = fields.object("function")
    if function is None or not function.text("name"):
        raise invalid_arg(f"{fields.path('function.name')} is required")
    function.text("description")
    function.object("parameters")
    return {**fields.values, "type": "function"}
