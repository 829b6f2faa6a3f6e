"""``/v1/responses``: items in and out, whole and as events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bident.errors import Code, ServeError
from bident.wire.text import TextEnd, TextPiece, ToolChoice
from tests.unit.text.doors.scripted_engine import CALL, USAGE, ScriptedEngine, doors

ASK = {"model": "smol", "input": "Hi"}
COUNTED = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 9,
}
ALL = (
    TextPiece(thinking="Hm"),
    TextPiece(content="Hel"),
    TextPiece(content="lo"),
    TextPiece(tool_calls=(CALL,)),
    TextEnd(reason="tool_calls", usage=USAGE),
)


def events(text: str) -> list[dict[str, Any]]:
    found = []
    for each in text.split("\n\n")[:-1]:
        name, data = each.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_a_response_in_one_piece() -> None:
    said = doors(ScriptedEngine(ALL)).client.post("/v1/responses", json=ASK).json()
    assert (said["object"], said["status"], said["model"], said["usage"]) == ("response", "completed", "smol", COUNTED)
    thought, message, call = said["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": "Hm"}]
    assert (message["role"], message["status"]) == ("assistant", "completed")
    assert message["content"] == [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}]
    assert (call["type"], call["call_id"], call["name"]) == ("function_call", "call_1", "weather")
    assert json.loads(call["arguments"]) == CALL.arguments


def test_a_response_as_events() -> None:
    found = events(doors(ScriptedEngine(ALL)).client.post("/v1/responses", json={**ASK, "stream": True}).text)
    item = ("response.output_item.added", "response.output_item.done")
    assert [each["type"] for each in found] == [
        "response.created",
        "response.in_progress",
        item[0],
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        item[1],
        item[0],
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        item[1],
        item[0],
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        item[1],
        "response.completed",
    ]
    assert [each["sequence_number"] for each in found] == [*range(len(found))]
    assert [each["output_index"] for each in found if each["type"] == item[0]] == [0, 1, 2]
    assert [each["delta"] for each in found if each["type"] == "response.output_text.delta"] == ["Hel", "lo"]
    done = [each["item"] for each in found if each["type"] == item[1]]
    assert found[-1]["response"]["output"] == done
    assert found[-1]["response"]["usage"] == COUNTED


def test_a_response_that_was_cut_is_incomplete() -> None:
    stage = doors(ScriptedEngine((TextPiece(content="x"), TextEnd(reason="length", usage=USAGE))))
    said = stage.client.post("/v1/responses", json=ASK).json()
    assert (said["status"], said["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    found = events(stage.client.post("/v1/responses", json={**ASK, "stream": True}).text)
    assert found[-1]["type"] == "response.incomplete"


def test_an_empty_answer_is_an_empty_message() -> None:
    stage = doors(ScriptedEngine((TextEnd(usage=USAGE),)))
    whole = stage.client.post("/v1/responses", json=ASK).json()["output"]
    found = events(stage.client.post("/v1/responses", json={**ASK, "stream": True}).text)
    for output in (whole, found[-1]["response"]["output"]):
        assert [item["content"][0]["text"] for item in output] == [""]


def test_every_field_reaches_the_engine() -> None:
    stage = doors()
    body = {
        "model": "smol",
        "instructions": "be brief",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"x": 1}'},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "42"},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}],
        "tool_choice": {"type": "function", "name": "f"},
        "max_output_tokens": 5,
        "temperature": 0.5,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        "reasoning": {"effort": "high"},
        "truncation": "disabled",
    }
    assert stage.client.post("/v1/responses", json=body).status_code == 200
    asked = stage.engine.asked[0]
    system, user, assistant, result = asked.messages
    assert (system.role, system.content, user.content) == ("system", "be brief", "a")
    assert (assistant.content, assistant.thinking) == ("b", "Hm")
    assert [(call.id, call.name) for call in assistant.tool_calls] == [("c1", "f"), ("c2", "g")]
    assert (result.role, result.content, result.tool_call_id) == ("tool", "42", "c1")
    assert asked.tools[0]["function"] == {"name": "f", "description": "", "parameters": {"type": "object"}}
    assert (asked.tool_choice, asked.format, asked.think) == (ToolChoice("required", "f"), {"type": "object"}, "high")
    assert (asked.options["num_predict"], asked.options["temperature"], asked.truncate) == (5, 0.5, False)


@pytest.mark.parametrize(
    "more",
    [
        {"input": None},
        {"input": []},
        {"input": 1},
        {"input": ["x"]},
        {"input": [{"type": "video"}]},
        {"input": [{"role": "user", "content": 1}]},
        {"previous_response_id": "resp_1"},
        {"conversation": "c"},
        {"background": True},
        {"tools": [{"type": "web_search"}]},
        {"tools": [{"type": "function"}]},
        {"tool_choice": {"type": "web_search"}},
        {"text": {"format": {"type": "json_schema"}}},
        {"reasoning": {"effort": "hard"}},
        {"max_output_tokens": 0},
        {"truncation": "x"},
    ],
)
def test_what_is_refused_is_named(more: dict[str, Any]) -> None:
    answer = doors().client.post("/v1/responses", json={**ASK, **more})
    assert answer.status_code == 400
    assert next(iter(more)) in answer.json()["error"]["message"]


def test_an_error_after_the_first_event_is_the_last_one() -> None:
    stage = doors(ScriptedEngine((TextPiece(content="x"), ServeError(Code.INTERNAL, "why"))))
    last = events(stage.client.post("/v1/responses", json={**ASK, "stream": True}).text)[-1]
    assert (last["type"], last["message"]) == ("error", "why")
    stage = doors(ScriptedEngine((ServeError(Code.NOT_FOUND, "why"),)))
    assert stage.client.post("/v1/responses", json={**ASK, "stream": True}).status_code == 404
