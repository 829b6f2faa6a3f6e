"""The body of ``/v1/responses`` as a request to the text engine (OpenAI's Responses API reference)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from bident.errors import invalid_arg
from bident.text.doors.fields import Fields
from bident.text.doors.ollama_requests import required_model
from bident.text.doors.openai_requests import answer_format, arguments, effort, message, sampling
from bident.text.durations import parse_keep_alive
from bident.wire.text import Message, TextRequest, ToolCall, ToolChoice

_MOST_TOP_LOGPROBS = 20
_HARMLESS = (
    "store",
    "user",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "include",
    "stream_options",
    "max_tool_calls",
)


def responses_request(fields: Fields) -> TextRequest:
    """The request. Raises INVALID_ARG; for what would need earlier responses to be kept, too."""
    model = required_model(fields)
    for name in ("previous_response_id", "conversation"):
        fields.refuse(name, "this server keeps no responses; send the whole conversation in 'input'")
    fields.refuse("background", "responses are answered at once")
    fields.refuse("prompt", "this server keeps no prompts; send the text in 'input'")
    options = sampling(fields)
    if fields.raw("max_output_tokens") is not None:
        options["num_predict"] = fields.whole("max_output_tokens", 1, 1)
    fields.ignore(*_HARMLESS)
    reasoning = fields.object("reasoning") or Fields({})
    reasoning.ignore("summary", "generate_summary")
    return TextRequest(
        model=model,
        messages=_messages(fields),
        tools=[_tool(each) for each in fields.objects("tools")],
        tool_choice=_tool_choice(fields),
        parallel_tool_calls=fields.flag("parallel_tool_calls", True),
        format=answer_format((fields.object("text") or Fields({})).object("format"), nested=False),
        think=effort(reasoning, "effort") if reasoning.raw("effort") is not None else None,
        options=options,
        logprobs=fields.raw("top_logprobs") is not None,
        top_logprobs=fields.whole("top_logprobs", 0, 0, _MOST_TOP_LOGPROBS),
        truncate=fields.choice("truncation", ("auto", "disabled"), "auto") == "auto",
        keep_alive=parse_keep_alive(fields.raw("keep_alive")),
    )


def _messages(fields: Fields) -> list[Message]:
    instructions = fields.text("instructions")
    messages = [Message("system", instructions)] if instructions else []
    given = fields.raw("input")
    if isinstance(given, str):
        messages.append(Message("user", given))
    else:
        thinking = ""
        for item in fields.objects("input"):
            if item.text("type", "message") == "reasoning":
                thinking = _thought(item)
                continue
            _add(messages, item, thinking)
            thinking = ""
    if len(messages) == bool(instructions):
        raise invalid_arg("input is required: a string, or a list of messages")
    return messages


def _add(messages: list[Message], item: Fields, thinking: str) -> None:
    """Add an item of the input; calls of one turn are one message, as the models know it."""
    kind = item.text("type", "message")
    if kind == "message":
        said = message(item)
        item.ignore("id", "status", "phase")
        messages.append(Message(said.role, said.content, thinking, said.images))
    elif kind == "function_call":
        call = ToolCall(item.text("call_id"), item.text("name"), arguments(item, "arguments"))
        last = messages[-1] if messages else Message("user")
        if last.role == "assistant":
            messages[-1] = Message("assistant", last.content, last.thinking, last.images, [*last.tool_calls, call])
        else:
            messages.append(Message("assistant", "", thinking, tool_calls=[call]))
    elif kind == "function_call_output":
        messages.append(Message("tool", _output(item), tool_call_id=item.text("call_id")))
    else:
        raise item.wrong("type", "message, function_call, function_call_output or reasoning")


def _thought(item: Fields) -> str:
    return "\n".join(part.text("text") for part in item.objects("summary"))


def _output(item: Fields) -> str:
    value = item.raw("output")
    if isinstance(value, list):
        return "\n".join(part.text("text") for part in item.objects("output"))
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _tool(fields: Fields) -> Mapping[str, Any]:
    """A tool in the form of chats, which the engine takes."""
    if fields.text("type") != "function":
        raise fields.wrong("type", "function; this server has no tools of its own")
    if not fields.text("name"):
        raise invalid_arg(f"{fields.path('name')} is required")
    parameters = fields.object("parameters")
    function: dict[str, Any] = {"name": fields.text("name"), "description": fields.text("description")}
    function["parameters"] = dict(parameters.values) if parameters else {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def _tool_choice(fields: Fields) -> ToolChoice:
    value = fields.raw("tool_choice")
    if value is None:
        return ToolChoice()
    if value in ("auto", "none", "required"):
        return ToolChoice(value)
    name = value.get("name") if isinstance(value, dict) and value.get("type") == "function" else None
    if not isinstance(name, str) or not name:
        raise fields.wrong("tool_choice", '"auto", "none", "required" or {"type": "function", "name": ...}')
    return ToolChoice("required", name)
