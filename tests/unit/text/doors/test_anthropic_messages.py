"""``/v1/messages`` and ``/v1/messages/count_tokens``: Anthropic's shapes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from bident.errors import Code, ServeError
from bident.wire.text import TextEnd, TextPiece, ToolChoice
from tests.unit.text.doors.scripted_engine import CALL, USAGE, ScriptedEngine, doors
from tests.unit.text.doors.test_openai_responses import events

ASK = {"model": "smol", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
COUNTED = {"input_tokens": 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 3, "output_tokens": 2}
ALL = (
    TextPiece(thinking="Hm"),
    TextPiece(content="Hel"),
    TextPiece(content="lo"),
    TextPiece(tool_calls=(CALL,)),
    TextEnd(reason="tool_calls", usage=USAGE),
)


def test_a_message_in_one_piece() -> None:
    said = doors(ScriptedEngine(ALL)).client.post("/v1/messages", json=ASK).json()
    assert said["id"].startswith("msg_")
    assert (said["type"], said["role"], said["model"]) == ("message", "assistant", "smol")
    assert said["content"] == [
        {"type": "thinking", "thinking": "Hm", "signature": ""},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Paris", "at": 1}},
    ]
    assert (said["stop_reason"], said["stop_sequence"], said["usage"]) == ("tool_use", None, COUNTED)


def test_a_message_as_events() -> None:
    found = events(doors(ScriptedEngine(ALL)).client.post("/v1/messages", json={**ASK, "stream": True}).text)
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    kinds = ["message_start", *block, block[0], block[1], *block[1:], *block, "message_delta", "message_stop"]
    assert [each["type"] for each in found] == kinds
    assert found[0]["message"]["content"] == []
    assert [each["index"] for each in found[1:-2]] == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
    assert [each["delta"] for each in found if each["type"] == "content_block_delta"] == [
        {"type": "thinking_delta", "thinking": "Hm"},
        {"type": "text_delta", "text": "Hel"},
        {"type": "text_delta", "text": "lo"},
        {"type": "input_json_delta", "partial_json": '{"city":"Paris","at":1}'},
    ]
    assert (found[-2]["delta"]["stop_reason"], found[-2]["usage"]) == ("tool_use", COUNTED)


@pytest.mark.parametrize(("reason", "said"), [("stop", "end_turn"), ("length", "max_tokens")])
def test_stop_reasons_and_empty_answers(reason: str, said: str) -> None:
    stage = doors(ScriptedEngine((TextEnd(reason=reason, usage=USAGE),)))
    whole = stage.client.post("/v1/messages", json=ASK).json()
    assert (whole["content"], whole["stop_reason"]) == ([{"type": "text", "text": ""}], said)
    found = events(stage.client.post("/v1/messages", json={**ASK, "stream": True}).text)
    assert [each["type"] for each in found[1:3]] == ["content_block_start", "content_block_stop"]


def test_every_field_reaches_the_engine() -> None:
    stage = doors()
    picture = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"png").decode()}
    text = {"type": "text", "text": "b"}
    body = {
        "model": "smol",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [text, {"type": "image", "source": picture}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm", "signature": "s"},
                    {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "42"}]},
                    text,
                ],
            },
        ],
        "temperature": 0.5,
        "top_k": 3,
        "stop_sequences": ["x"],
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    }
    assert stage.client.post("/v1/messages", json=body).status_code == 200
    asked = stage.engine.asked[0]
    system, user, assistant, result, after = asked.messages
    assert (system.role, system.content, user.content, user.images) == ("system", "be brief", "b", [b"png"])
    assert (assistant.thinking, assistant.tool_calls[0].arguments) == ("Hm", {"x": 1})
    assert (result.role, result.content, result.tool_call_id, after.content) == ("tool", "42", "c", "b")
    assert asked.options == {"num_predict": 5, "temperature": 0.5, "top_p": 1.0, "top_k": 3, "stop": ["x"]}
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    assert asked.tools == [{"type": "function", "function": function}]
    assert (asked.tool_choice, asked.parallel_tool_calls) == (ToolChoice("required", "f"), False)
    assert (asked.think, asked.format) == (True, {"type": "object"})


@pytest.mark.parametrize(
    ("given", "means"),
    [({"type": "any"}, ToolChoice("required")), ({"type": "none"}, ToolChoice("none")), (None, ToolChoice("auto"))],
)
def test_tool_choice(given: Any, means: ToolChoice) -> None:
    stage = doors()
    stage.client.post("/v1/messages", json={**ASK, "tool_choice": given})
    assert stage.engine.asked[0].tool_choice == means


@pytest.mark.parametrize(
    "more",
    [
        {"model": None},
        {"max_tokens": None},
        {"max_tokens": 0},
        {"messages": []},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": [{"type": "video"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}]},
        {"system": 5},
        {"stop_sequences": "x"},
        {"stop_sequences": [1]},
        {"tools": [{"type": "bash_20250124", "name": "bash"}]},
        {"tools": [{}]},
        {"tool_choice": {"type": "tool"}},
        {"thinking": {"type": "x"}},
        {"output_config": {"format": {"type": "json_schema"}}},
        {"mcp_servers": [{}]},
    ],
)
def test_what_is_refused_is_named(more: dict[str, Any]) -> None:
    answer = doors().client.post("/v1/messages", json={**ASK, **more})
    assert answer.status_code == 400
    error = answer.json()
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    assert error["request_id"].startswith("req_")
    assert next(iter(more)) in error["error"]["message"]


def test_count_tokens_needs_no_limit() -> None:
    body = {"model": "smol", "messages": ASK["messages"]}
    assert doors().client.post("/v1/messages/count_tokens", json=body).json() == {"input_tokens": 42}


def test_errors() -> None:
    stage = doors(ScriptedEngine((ServeError(Code.UNAVAILABLE, "busy"),)))
    answer = stage.client.post("/v1/messages", json={**ASK, "stream": True})
    assert (answer.status_code, answer.json()["error"]) == (503, {"type": "overloaded_error", "message": "busy"})
    stage = doors(ScriptedEngine((TextPiece(content="x"), ServeError(Code.INTERNAL, "why"))))
    last = json.loads(
        stage.client.post("/v1/messages", json={**ASK, "stream": True}).text.split("\n\n")[-2].partition("data: ")[2]
    )
    assert last["error"] == {"type": "api_error", "message": "why"}
