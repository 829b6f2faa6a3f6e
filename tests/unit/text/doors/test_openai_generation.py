"""``/v1/chat/completions`` and ``/v1/completions``: OpenAI's shapes, whole and in chunks."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from bident.errors import Code, ServeError
from bident.text.doors import fields
from bident.wire.text import TextEnd, TextPiece, ToolChoice, Usage
from tests.unit.text.doors.scripted_engine import CALL, CHANCE, USAGE, ScriptedEngine, doors

MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT = {"model": "smol", "messages": MESSAGES}
COMPLETION = {"model": "smol", "prompt": "Once"}
COUNTED = {
    "prompt_tokens": 7,
    "completion_tokens": 2,
    "total_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 3},
}
TWO = (
    TextPiece(index=0, content="a"),
    TextPiece(index=1, content="b"),
    TextEnd(index=1, reason="length"),
    TextEnd(index=0, usage=USAGE),
)


def events(text: str) -> list[Any]:
    """The objects of server-sent events; ``[DONE]`` is checked and left out."""
    *found, done, nothing = text.split("\n\n")
    assert (done, nothing) == ("data: [DONE]", "")
    return [json.loads(each.removeprefix("data: ")) for each in found]


def test_a_chat_in_one_piece() -> None:
    said = doors().client.post("/v1/chat/completions", json=CHAT).json()
    assert said["id"].startswith("chatcmpl-")
    assert (said["object"], said["model"], said["system_fingerprint"]) == ("chat.completion", "smol", "fp_ollama")
    message = {"role": "assistant", "content": "Hello"}
    assert said["choices"] == [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}]
    assert (said["usage"], said["context_length"]) == (COUNTED, 4096)


def test_a_chat_in_chunks() -> None:
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    answer = doors().client.post("/v1/chat/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, finish, usage = events(answer.text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "Hel"}, {"content": "lo"}]
    assert finish["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert (usage["choices"], usage["usage"]) == ([], COUNTED)
    assert len({chunk["id"] for chunk in [*chunks, finish, usage]}) == 1
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in [*chunks, finish, usage])


def test_usage_comes_only_where_it_is_asked_for() -> None:
    found = events(doors().client.post("/v1/chat/completions", json={**CHAT, "stream": True}).text)
    assert not any("usage" in each for each in found)


def test_several_answers() -> None:
    stage = doors(ScriptedEngine(TWO))
    said = stage.client.post("/v1/chat/completions", json={**CHAT, "n": 2}).json()
    assert stage.engine.asked[0].count == 2
    assert [(each["index"], each["message"]["content"], each["finish_reason"]) for each in said["choices"]] == [
        (0, "a", "stop"),
        (1, "b", "length"),
    ]
    found = events(stage.client.post("/v1/chat/completions", json={**CHAT, "n": 2, "stream": True}).text)
    ends = [each["choices"][0] for each in found if each["choices"][0]["finish_reason"]]
    assert [(end["index"], end["finish_reason"]) for end in ends] == [(1, "length"), (0, "stop")]


def test_tool_calls() -> None:
    pieces = (TextPiece(tool_calls=(CALL,)), TextPiece(tool_calls=(CALL,)), TextEnd(reason="tool_calls", usage=USAGE))
    stage = doors(ScriptedEngine(pieces))
    called = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Paris","at":1}'},
    }
    choice = stage.client.post("/v1/chat/completions", json=CHAT).json()["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": None, "tool_calls": [called, called]}
    assert choice["finish_reason"] == "tool_calls"
    found = events(stage.client.post("/v1/chat/completions", json={**CHAT, "stream": True}).text)
    deltas = [each["choices"][0]["delta"] for each in found]
    assert [delta["tool_calls"] for delta in deltas if "tool_calls" in delta] == [
        [{"index": 0, **called}],
        [{"index": 1, **called}],
    ]
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_thinking_and_logprobs() -> None:
    pieces = (TextPiece(thinking="Hm"), TextPiece(content="Hi", chances=(CHANCE,)), TextEnd(usage=USAGE))
    stage = doors(ScriptedEngine(pieces))
    choice = stage.client.post("/v1/chat/completions", json={**CHAT, "logprobs": True, "top_logprobs": 1}).json()
    choice = choice["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "Hi", "reasoning": "Hm"}
    top = [{"token": "Ho", "logprob": -1.5, "bytes": [72, 111]}]
    likely = {"content": [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": top}], "refusal": None}
    assert choice["logprobs"] == likely
    found = events(stage.client.post("/v1/chat/completions", json={**CHAT, "stream": True}).text)
    assert found[1]["choices"][0]["delta"] == {"reasoning": "Hm"}
    assert found[2]["choices"][0]["logprobs"] == likely


def test_what_was_left_out_is_said() -> None:
    stage = doors(ScriptedEngine((TextPiece(content="x"), TextEnd(usage=Usage(truncated_tokens=5)))))
    said = stage.client.post("/v1/chat/completions", json=CHAT).json()
    assert (said["truncated"], said["truncated_tokens"]) == (True, 5)
    assert events(stage.client.post("/v1/chat/completions", json={**CHAT, "stream": True}).text)[-1]["truncated"]


def test_every_field_reaches_the_engine() -> None:
    stage = doors()
    picture = "data:image/png;base64," + base64.b64encode(b"png").decode()
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": picture}}]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    body = {
        "model": "smol",
        "messages": [
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "42"},
        ],
        "max_tokens": 5,
        "max_completion_tokens": 6,
        "temperature": 0.5,
        "top_p": 0.25,
        "frequency_penalty": 1,
        "presence_penalty": -1,
        "seed": 7,
        "stop": "x",
        "tools": [tool],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "logit_bias": {"15": -100},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "reasoning_effort": "minimal",
        "options": {"num_ctx": 8192},
        "top_k": 3,
    }
    assert stage.client.post("/v1/chat/completions", json=body).status_code == 200
    asked = stage.engine.asked[0]
    system, user, assistant, result = asked.messages
    assert (system.role, user.content, user.images) == ("system", "a", [b"png"])
    assert (assistant.tool_calls[0].arguments, result.tool_call_id) == ({"x": 1}, "c")
    assert asked.options == {
        "num_predict": 6,
        "temperature": 0.5,
        "top_p": 0.25,
        "frequency_penalty": 1,
        "presence_penalty": -1,
        "seed": 7,
        "stop": ["x"],
        "num_ctx": 8192,
        "top_k": 3,
    }
    assert (asked.tools, asked.tool_choice, asked.parallel_tool_calls) == ([tool], ToolChoice("required", "f"), False)
    assert (asked.logit_bias, asked.format, asked.think) == ({15: -100}, {"type": "object"}, "low")


def test_openais_defaults() -> None:
    stage = doors()
    stage.client.post("/v1/chat/completions", json=CHAT)
    asked = stage.engine.asked[0]
    assert asked.options == {"temperature": 1.0, "top_p": 1.0}
    assert (asked.think, asked.format, asked.count, asked.tool_choice) == (None, None, 1, ToolChoice("auto"))


@pytest.mark.parametrize(
    ("given", "means"), [("none", False), ("low", "low"), ("high", "high"), ("xhigh", "max"), (None, None)]
)
def test_reasoning_effort(given: str | None, means: object) -> None:
    stage = doors()
    stage.client.post("/v1/chat/completions", json={**CHAT, "reasoning_effort": given})
    stage.client.post("/v1/chat/completions", json={**CHAT, "reasoning": {"effort": given}})
    assert [asked.think for asked in stage.engine.asked] == [means, means]


TYPES: dict[str, list[Any]] = {
    "model": [1, None, ""],
    "messages": ["x", {}, [1], []],
    "stream": ["true"],
    "stream_options": [True, {"include_usage": "yes"}],
    "max_tokens": [0, "5", 1.5, -2],
    "max_completion_tokens": [0, []],
    "temperature": ["hot", 3, -1, True],
    "top_p": [2, "x"],
    "frequency_penalty": [3],
    "presence_penalty": ["x"],
    "seed": ["x", 1.5],
    "stop": [1, [1], {}],
    "n": [0, "2", 1000],
    "tools": ["x", [{}], [{"type": "function", "function": {"name": 1}}]],
    "tool_choice": ["maybe", {"type": "function"}, 1],
    "parallel_tool_calls": ["x"],
    "response_format": ["json", {"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {}}],
    "logit_bias": [[], {"a": 1}, {"1": "x"}, {"1": 101}, {"-1": 1}],
    "logprobs": [1],
    "top_logprobs": [21, "x", 2],
    "reasoning_effort": ["hard", 1],
    "options": [[]],
    "modalities": [["audio"]],
    "functions": [[{"name": "f"}]],
    "audio": [{"voice": "x"}],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in TYPES.items() for value in values])
def test_wrong_values_are_named(name: str, value: Any) -> None:
    stage = doors()
    answer = stage.client.post("/v1/chat/completions", json={**CHAT, name: value})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert name in error["message"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, None)
    assert not stage.engine.asked


@pytest.mark.parametrize(
    "content",
    [
        1,
        {},
        ["x"],
        [{"type": "video"}],
        [{"type": "text", "text": 1}],
        [{"type": "image_url"}],
        [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/secret"}}],
        [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}],
        [{"type": "image_url", "image_url": {"url": "data:image/png,x"}}],
        [{"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}}],
        [{"type": "input_audio", "input_audio": {}}],
    ],
)
def test_contents_that_cannot_be_read(content: Any) -> None:
    stage = doors()
    body = {"model": "smol", "messages": [{"role": "user", "content": content}]}
    answer = stage.client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert "messages[0].content" in answer.json()["error"]["message"]
    assert not stage.engine.asked


def test_unknown_fields_are_logged_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "_strays", set())
    client = doors().client
    for _ in range(3):
        body = {**CHAT, "temprature": 1, "user": "me", "metadata": {}}
        assert client.post("/v1/chat/completions", json=body).status_code == 200
    assert [record.getMessage() for record in caplog.records] == [
        "/v1/chat/completions: the field 'temprature' is unknown and ignored"
    ]


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (Code.NOT_FOUND, 404, "not_found_error"),
        (Code.INVALID_ARG, 400, "invalid_request_error"),
        (Code.UNAVAILABLE, 503, "api_error"),
        (Code.INTERNAL, 500, "api_error"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_errors_have_openais_shape(code: Code, status: int, kind: str, stream: bool) -> None:
    stage = doors(ScriptedEngine((ServeError(code, "why"),)))
    answer = stage.client.post("/v1/chat/completions", json={**CHAT, "stream": stream})
    assert answer.status_code == status
    assert answer.json() == {"error": {"message": "why", "type": kind, "param": None, "code": None}}


def test_an_error_after_the_first_chunk_is_the_last_event() -> None:
    stage = doors(ScriptedEngine((TextPiece(content="x"), ServeError(Code.INTERNAL, "why"))))
    text = stage.client.post("/v1/chat/completions", json={**CHAT, "stream": True}).text
    last = json.loads(text.split("\n\n")[-2].removeprefix("data: "))
    assert last["error"]["message"] == "why"
    assert "[DONE]" not in text


def test_a_completion() -> None:
    pieces = (TextPiece(content="Hi", chances=(CHANCE,)), TextEnd(usage=USAGE))
    stage = doors(ScriptedEngine(pieces))
    said = stage.client.post(
        "/v1/completions", json={**COMPLETION, "echo": True, "logprobs": 1, "max_tokens": 2}
    ).json()
    assert (said["object"], said["usage"]) == ("text_completion", COUNTED)
    likely = {"tokens": ["Hi"], "token_logprobs": [-0.5], "top_logprobs": [{"Ho": -1.5}], "text_offset": [4]}
    assert said["choices"] == [{"text": "OnceHi", "index": 0, "logprobs": likely, "finish_reason": "stop"}]
    asked = stage.engine.asked[0]
    assert (asked.prompt, asked.raw, asked.logprobs, asked.top_logprobs) == ("Once", False, True, 1)
    assert asked.options["num_predict"] == 2


def test_a_completion_in_chunks() -> None:
    body = {**COMPLETION, "stream": True, "stream_options": {"include_usage": True}}
    *chunks, finish, usage = events(doors().client.post("/v1/completions", json=body).text)
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["Hel", "lo"]
    assert finish["choices"] == [{"text": "", "index": 0, "logprobs": None, "finish_reason": "stop"}]
    assert (usage["choices"], usage["usage"]) == ([], COUNTED)


@pytest.mark.parametrize("prompt", [[1, 2], [[1, 2]]])
def test_tokens_are_a_raw_prompt(prompt: Any) -> None:
    stage = doors()
    stage.client.post("/v1/completions", json={"model": "smol", "prompt": prompt})
    assert (stage.engine.asked[0].prompt, stage.engine.asked[0].raw) == ([1, 2], True)


@pytest.mark.parametrize("prompt", [None, "", [], ["a", "b"], [["a"], "b"], [1, "a"], 5, {}, [[[1]], 2]])
def test_prompts_that_are_none(prompt: Any) -> None:
    answer = doors().client.post("/v1/completions", json={"model": "smol", "prompt": prompt})
    assert answer.status_code == 400
    assert "prompt" in answer.json()["error"]["message"]


def test_best_of_is_refused() -> None:
    answer = doors().client.post("/v1/completions", json={**COMPLETION, "best_of": 3})
    assert "best_of" in answer.json()["error"]["message"]
