"""Messages as OpenAI's API has them (docs "Create chat completion"), which is what llama.cpp takes."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from bident.errors import invalid_arg
from bident.wire.text import Message, ToolCall

_PICTURES = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"BM": "bmp"}


def to_openai(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """``messages`` for a chat payload; pictures become data URIs, so nothing is ever fetched for them.

    Raises INVALID_ARG for an image that is no picture.
    """
    return [_message(message, place) for place, message in enumerate(messages)]


def _message(message: Message, place: int) -> dict[str, Any]:
    document: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.images:
        pictures = [{"type": "image_url", "image_url": {"url": _data_uri(image)}} for image in message.images]
        document["content"] = [{"type": "text", "text": message.content}, *pictures]
    if message.thinking:
        document["reasoning_content"] = message.thinking
    if message.tool_calls:
        document["tool_calls"] = [_tool_call(call, number) for number, call in enumerate(message.tool_calls)]
    if message.role == "tool":
        document["tool_call_id"] = message.tool_call_id or f"call_{place}"
        if message.tool_name:
            document["name"] = message.tool_name
    return document


def _tool_call(call: ToolCall, number: int) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json_text(call.arguments)}
    return {"id": call.id or f"call_{number}", "type": "function", "function": function}


def json_text(value: Mapping[str, Any]) -> str:
    """``value`` as JSON. Raises INVALID_ARG for what is nested too deeply to be written."""
    try:
        return orjson.dumps(dict(value)).decode()
    except (TypeError, ValueError, RecursionError):
        raise invalid_arg("arguments of a tool call cannot be written as JSON") from None


def _data_uri(image: bytes) -> str:
    kind = next((name for start, name in _PICTURES.items() if image.startswith(start)), "")
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        kind = "webp"
    if not kind:
        raise invalid_arg("an image is none: PNG, JPEG, GIF, BMP and WebP files can be read")
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
