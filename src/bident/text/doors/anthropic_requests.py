"""Anthropic's request bodies as requests to the text engine (its Messages API reference)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from bident.errors import invalid_arg
from bident.text.doors.fields import Fields
from bident.text.doors.images import decode_image
from bident.text.doors.openai_requests import effort, sampling
from bident.text.durations import parse_keep_alive
from bident.wire.text import Message, TextRequest, ToolCall, ToolChoice

_HARMLESS = ("metadata", "service_tier", "container", "context_management", "cache_control", "inference_geo")


def messages_request(fields: Fields, *, counting: bool = False) -> TextRequest:
    """The request in the body of ``/v1/messages``. Raises INVALID_ARG.

    ``counting``: in that of ``/v1/messages/count_tokens``, which needs no ``max_tokens``.
    """
    model = fields.text("model")
    if not model:
        raise invalid_arg("model: Field required")
    if not counting and fields.raw("max_tokens") is None:
        raise invalid_arg("max_tokens: Field required")
    messages = [each for turn in fields.objects("messages") for each in _turn(turn)]
    if not messages:
        raise invalid_arg("messages: at least one message is required")
    if system := _texts(fields, "system"):
        messages.insert(0, Message("system", system))
    options = sampling(fields)
    if fields.raw("max_tokens") is not None:
        options["num_predict"] = fields.whole("max_tokens", 1, 1)
    if stop := fields.elements("stop_sequences", "a list of strings"):
        if not all(isinstance(each, str) for each in stop):
            raise fields.wrong("stop_sequences", "a list of strings")
        options["stop"] = [*stop]
    choice, parallel = _tool_choice(fields)
    config = fields.object("output_config") or Fields({})
    fields.refuse("mcp_servers", "this server calls no tools itself")
    fields.ignore(*_HARMLESS)
    return TextRequest(
        model=model,
        messages=messages,
        tools=[_tool(each) for each in fields.objects("tools")],
        tool_choice=choice,
        parallel_tool_calls=parallel,
        format=_format(config),
        think=_think(fields, config),
        options=options,
        keep_alive=parse_keep_alive(fields.raw("keep_alive")),
    )


def _turn(fields: Fields) -> list[Message]:
    """The messages that one turn is: results of tools are messages of their own here, and come first."""
    role = fields.choice("role", ("user", "assistant", "system"), "")
    if not isinstance(fields.raw("content"), list):
        return [Message(role, fields.text("content"))]
    results: list[Message] = []
    texts: list[str] = []
    thoughts: list[str] = []
    images: list[bytes] = []
    calls: list[ToolCall] = []
    for block in fields.objects("content"):
        kind = block.text("type")
        if kind == "text":
            texts.append(block.text("text"))
        elif kind == "image":
            images.append(_image(block))
        elif kind == "thinking":
            thoughts.append(block.text("thinking"))
        elif kind == "tool_use":
            given = block.object("input") or Fields({})
            calls.append(ToolCall(block.text("id"), block.text("name"), given.values))
        elif kind == "tool_result":
            results.append(_result(block))
        elif kind != "redacted_thinking":
            raise block.wrong("type", "text, image, thinking, tool_use or tool_result; this server takes no others")
    if texts or thoughts or images or calls or not results:
        return [*results, Message(role, "\n".join(texts), "\n".join(thoughts), images, calls)]
    return results


def _result(block: Fields) -> Message:
    """What a tool has given back."""
    images = []
    content = block.raw("content")
    if isinstance(content, list):
        parts = block.objects("content")
        images = [_image(part) for part in parts if part.raw("type") == "image"]
        content = "\n".join(part.text("text") for part in parts if part.raw("type") == "text")
    elif not isinstance(content, str):
        content = "" if content is None else orjson.dumps(content).decode()
    block.ignore("is_error")
    return Message("tool", content, images=images, tool_call_id=block.text("tool_use_id"))


def _image(block: Fields) -> bytes:
    source = block.object("source")
    if source is None or source.text("type") != "base64":
        raise invalid_arg(f"{block.path('source')}: only pictures in base64 are supported; nothing is fetched")
    return decode_image(source.raw("data"), source.path("data"))


def _texts(fields: Fields, name: str) -> str:
    """A text, or blocks of text."""
    if not isinstance(fields.raw(name), list):
        return fields.text(name)
    return "\n".join(block.text("text") for block in fields.objects(name))


def _tool(fields: Fields) -> Mapping[str, Any]:
    """A tool in OpenAI's form, which the engine takes."""
    kind = fields.text("type", "custom")
    if kind != "custom":
        raise fields.wrong("type", "custom; this server has no tools of its own")
    if not fields.text("name"):
        raise invalid_arg(f"{fields.path('name')}: Field required")
    schema = fields.object("input_schema")
    function: dict[str, Any] = {"name": fields.text("name"), "description": fields.text("description")}
    function["parameters"] = dict(schema.values) if schema else {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def _tool_choice(fields: Fields) -> tuple[ToolChoice, bool]:
    """What may be called, and whether several at once."""
    choice = fields.object("tool_choice")
    if choice is None:
        return ToolChoice(), True
    kind = choice.choice("type", ("auto", "any", "tool", "none"), "auto")
    name = choice.text("name") if kind == "tool" else ""
    if kind == "tool" and not name:
        raise invalid_arg("tool_choice.name: Field required")
    mode = {"any": "required", "tool": "required"}.get(kind, kind)
    return ToolChoice(mode, name), not choice.flag("disable_parallel_tool_use")


def _format(config: Fields) -> Mapping[str, Any] | None:
    wanted = config.object("format")
    if wanted is None:
        return None
    wanted.choice("type", ("json_schema",), "")
    schema = wanted.object("schema")
    if schema is None:
        raise invalid_arg(f"{wanted.path('schema')}: Field required")
    return schema.values


def _think(fields: Fields, config: Fields) -> bool | str | None:
    thinking = fields.object("thinking")
    if thinking is None:
        return None
    kind = thinking.choice("type", ("enabled", "adaptive", "disabled"), "")
    thinking.ignore("budget_tokens", "display")
    if kind == "disabled":
        return False
    return effort(config, "effort") if config.raw("effort") is not None else True
