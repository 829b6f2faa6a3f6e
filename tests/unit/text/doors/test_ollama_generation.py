"""``/api/generate``, ``/api/chat``, ``/api/embed`` and ``/api/embeddings``: what is asked and how it is answered."""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any

import pytest

from bident.errors import Code, ServeError
from bident.wire.text import TextEnd, TextPiece, Usage
from tests.unit.text.doors.scripted_engine import CALL, CHANCE, USAGE, ScriptedEngine, doors

MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT = {"model": "smol", "messages": MESSAGES}
NANOSECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")
FIGURES = {
    "load_duration": 17,
    "prompt_eval_count": 7,
    "prompt_eval_duration": 11,
    "eval_count": 2,
    "eval_duration": 13,
    "context_length": 4096,
}


def lines(text: str) -> list[dict[str, Any]]:
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_chat_streams_one_line_for_each_piece_unless_told_otherwise() -> None:
    answer = doors().client.post("/api/chat", json=CHAT)
    assert answer.headers["content-type"] == "application/x-ndjson"
    *pieces, last = lines(answer.text)
    assert [each["message"] for each in pieces] == [
        {"role": "assistant", "content": "Hel"},
        {"role": "assistant", "content": "lo"},
    ]
    assert all(each["model"] == "smol" and each["done"] is False for each in pieces)
    assert all(NANOSECONDS.fullmatch(each["created_at"]) for each in [*pieces, last])
    assert last["message"] == {"role": "assistant", "content": ""}
    assert (last["done"], last["done_reason"]) == (True, "stop")
    assert FIGURES.items() <= last.items()
    assert last["total_duration"] > 0
    assert "context" not in last


def test_generate_in_one_piece() -> None:
    answer = doors().client.post("/api/generate", json={"model": "smol", "prompt": "x", "stream": False})
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    said = answer.json()
    assert (said["response"], said["done"], said["context"]) == ("Hello", True, [1, 2])
    assert FIGURES.items() <= said.items()


def test_thinking_tool_calls_and_logprobs() -> None:
    pieces = (
        TextPiece(thinking="Hm"),
        TextPiece(content="Hi", chances=(CHANCE,)),
        TextPiece(tool_calls=(CALL,)),
        TextEnd(reason="tool_calls", usage=USAGE),
    )
    called = {"id": "call_1", "function": {"index": 0, "name": "weather", "arguments": {"city": "Paris", "at": 1}}}
    likely = {
        "token": "Hi",
        "logprob": -0.5,
        "bytes": [72, 105],
        "top_logprobs": [{"token": "Ho", "logprob": -1.5, "bytes": [72, 111]}],
    }
    stage = doors(ScriptedEngine(pieces))
    thought, spoken, calling, last = lines(stage.client.post("/api/chat", json=CHAT).text)
    assert thought["message"] == {"role": "assistant", "content": "", "thinking": "Hm"}
    assert spoken["logprobs"] == [likely]
    assert calling["message"]["tool_calls"] == [called]
    assert last["done_reason"] == "stop"
    whole = stage.client.post("/api/chat", json={**CHAT, "stream": False}).json()
    assert whole["message"] == {"role": "assistant", "content": "Hi", "thinking": "Hm", "tool_calls": [called]}
    assert whole["logprobs"] == [likely]


def test_what_was_left_out_is_said() -> None:
    usage = Usage(context_length=512, truncated_tokens=100)
    stage = doors(ScriptedEngine((TextPiece(content="x"), TextEnd(usage=usage))))
    last = lines(stage.client.post("/api/chat", json=CHAT).text)[-1]
    assert (last["context_length"], last["truncated"], last["truncated_tokens"]) == (512, True, 100)


def test_every_field_reaches_the_engine() -> None:
    stage = doors()
    picture = base64.b64encode(b"png").decode()
    call = {"id": "c", "function": {"index": 0, "name": "f", "arguments": {"b": 1, "a": 2}}}
    body = {
        "model": "smol",
        "messages": [
            {"role": "user", "content": "Hi", "images": [picture]},
            {"role": "assistant", "thinking": "t", "tool_calls": [call]},
            {"role": "tool", "content": "42", "tool_name": "f", "tool_call_id": "c"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "format": {"type": "object"},
        "think": "high",
        "options": {"num_ctx": 8192, "temperature": None},
        "keep_alive": -1,
        "logprobs": True,
        "top_logprobs": 3,
        "truncate": False,
        "shift": False,
    }
    assert stage.client.post("/api/chat", json=body).status_code == 200
    asked = stage.engine.asked[0]
    first, second, third = asked.messages
    assert (first.role, first.content, first.images) == ("user", "Hi", [b"png"])
    assert (second.thinking, [*second.tool_calls[0].arguments]) == ("t", ["b", "a"])
    assert (third.role, third.content, third.tool_name, third.tool_call_id) == ("tool", "42", "f", "c")
    assert asked.tools == [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    assert (asked.format, asked.think, asked.options) == ({"type": "object"}, "high", {"num_ctx": 8192})
    assert (asked.keep_alive, asked.logprobs, asked.top_logprobs) == (math.inf, True, 3)
    assert (asked.truncate, asked.shift) == (False, False)


def test_generate_fields_reach_the_engine() -> None:
    stage = doors()
    body = {"model": "smol", "prompt": "a", "suffix": "b", "system": "s", "template": "t", "context": [1, 2]}
    stage.client.post("/api/generate", json={**body, "keep_alive": "1h30m", "format": ""})
    asked = stage.engine.asked[0]
    assert (asked.prompt, asked.suffix, asked.system, asked.template) == ("a", "b", "s", "t")
    assert (asked.context, asked.keep_alive, asked.format, asked.messages) == ((1, 2), 5400, None, None)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/api/generate", {}, {"response": ""}),
        ("/api/generate", {"prompt": ""}, {"response": ""}),
        ("/api/chat", {"messages": []}, {"message": {"role": "assistant", "content": ""}}),
        ("/api/chat", {}, {"message": {"role": "assistant", "content": ""}}),
    ],
)
def test_asking_nothing_loads_or_unloads(path: str, body: dict[str, Any], said: dict[str, Any]) -> None:
    stage = doors()
    options = {"num_ctx": 9}
    loaded = stage.client.post(path, json={"model": "smol", **body, "options": options, "keep_alive": 60})
    assert loaded.headers["content-type"] == "application/json; charset=utf-8"
    assert {**said, "model": "smol", "done": True, "done_reason": "load"}.items() <= loaded.json().items()
    unloaded = stage.client.post(path, json={"model": "smol", **body, "keep_alive": 0}).json()
    assert unloaded["done_reason"] == "unload"
    assert stage.engine.asked == [("load", "smol", options, 60.0), ("unload", "smol")]


def test_an_error_before_the_first_piece_has_its_own_status() -> None:
    busy = "server busy, please try again.  maximum pending requests exceeded"
    stage = doors(ScriptedEngine((ServeError(Code.UNAVAILABLE, busy),)))
    answer = stage.client.post("/api/chat", json=CHAT)
    assert (answer.status_code, answer.json()) == (503, {"error": busy})


def test_an_error_after_it_is_the_last_line() -> None:
    failure = ServeError(Code.INTERNAL, "an error was encountered while running the model: killed")
    stage = doors(ScriptedEngine((TextPiece(content="x"), failure)))
    answer = stage.client.post("/api/chat", json=CHAT)
    assert answer.status_code == 200
    first, last = lines(answer.text)
    assert first["message"]["content"] == "x"
    assert last == {"error": "an error was encountered while running the model: killed"}
    assert stage.client.post("/api/chat", json={**CHAT, "stream": False}).status_code == 500


def test_an_unexpected_failure_is_no_traceback_for_the_client() -> None:
    answer = doors(ScriptedEngine((KeyError("secret"),))).client.post("/api/chat", json=CHAT)
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.json()["error"].startswith("internal error")


CHAT_TYPES: dict[str, list[Any]] = {
    "model": [1, ["smol"], {}],
    "messages": ["x", {}, 1, ["x"], [None]],
    "stream": ["true", 1],
    "format": ["yaml", 1, [1]],
    "think": ["hard", 1, {}, []],
    "options": ["x", [], 1],
    "tools": ["x", {}, [1], [{"type": "function"}], [{"type": "other", "function": {"name": "f"}}]],
    "keep_alive": ["soon", True, [], {}],
    "logprobs": [1, "x"],
    "top_logprobs": [21, -1, "1", 1.5, True],
    "truncate": ["x"],
    "shift": [0],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in CHAT_TYPES.items() for value in values])
def test_wrong_types_are_named(name: str, value: Any) -> None:
    stage = doors()
    answer = stage.client.post("/api/chat", json={**CHAT, name: value})
    assert answer.status_code == 400
    assert name.rstrip("s") in answer.json()["error"] or "duration" in answer.json()["error"]
    assert not stage.engine.asked


MESSAGE_TYPES: dict[str, list[Any]] = {
    "role": [1, None, ""],
    "content": [1, ["x"], {}],
    "images": ["x", [1], ["no base64!"], [""]],
    "tool_calls": ["x", [1], [{}], [{"function": {"name": 1}}], [{"function": {"arguments": "{}"}}]],
    "tool_name": [1],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in MESSAGE_TYPES.items() for value in values]
)
def test_wrong_types_in_messages_are_named_with_their_place(name: str, value: Any) -> None:
    message = {"role": "user", "content": "x", name: value}
    answer = doors().client.post("/api/chat", json={"model": "smol", "messages": [*MESSAGES, message]})
    assert answer.status_code == 400
    assert f"messages[1].{name}" in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/api/chat", {"messages": MESSAGES}, 400, "model is required"),
        ("/api/generate", {"prompt": "x"}, 404, "model '' not found"),
        ("/api/generate", {"model": "m", "prompt": "x", "raw": True, "system": "s"}, 400, "raw mode does not support"),
        ("/api/generate", {"model": "m", "prompt": "x", "context": ["a"]}, 400, "context must be a list of tokens"),
        ("/api/generate", {"model": "m", "prompt": ["x"]}, 400, "prompt must be a string"),
        (
            "/api/chat",
            {**CHAT, "format": "xml"},
            400,
            "invalid format: 'xml'; expected \"json\" or a valid JSON Schema",
        ),
        ("/api/chat", {**CHAT, "top_logprobs": 21}, 400, "top_logprobs must be between 0 and 20"),
    ],
)
def test_known_words(path: str, body: dict[str, Any], status: int, words: str) -> None:
    answer = doors().client.post(path, json=body)
    assert answer.status_code == status
    assert words in answer.json()["error"]


def test_embed() -> None:
    stage = doors()
    said = stage.client.post("/api/embed", json={"model": "smol", "input": ["a", "b"], "dimensions": 2}).json()
    assert (said["model"], said["embeddings"]) == ("smol", [[1.0, 0.5], [0.0, -2.0]])
    assert (said["prompt_eval_count"], said["load_duration"]) == (7, 17)
    assert (stage.engine.asked[0].dimensions, stage.engine.asked[0].normalise) == (2, True)
    assert stage.client.post("/api/embed", json={"model": "smol", "input": "a"}).json()["embeddings"] == [[1.0, 0.5]]
    for empty in ([], "", None):
        assert stage.client.post("/api/embed", json={"model": "smol", "input": empty}).json()["embeddings"] == []


def test_the_older_embeddings() -> None:
    stage = doors()
    assert stage.client.post("/api/embeddings", json={"model": "smol", "prompt": "a"}).json() == {
        "embedding": [1.0, 0.5]
    }
    assert stage.engine.asked[0].normalise is False
    assert stage.client.post("/api/embeddings", json={"model": "smol", "prompt": ""}).json() == {"embedding": []}


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/api/embed", {"prompt": "x"}, "takes 'input', not 'prompt'"),
        ("/api/embeddings", {"input": "x"}, "takes 'prompt', not 'input'"),
        ("/api/embed", {"input": 5}, "invalid input type"),
        ("/api/embed", {"input": ["a", 5]}, "invalid input type"),
        ("/api/embed", {"input": "a", "dimensions": -1}, "dimensions"),
        ("/api/embed", {}, "model is required"),
    ],
)
def test_embedding_mistakes(path: str, body: dict[str, Any], words: str) -> None:
    model = {} if not body else {"model": "smol"}
    answer = doors().client.post(path, json={**model, **body})
    assert answer.status_code == 400
    assert words in answer.json()["error"]
