"""What is made of the server's answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from answering_site import ScriptedServer, answered, delta, end_of, model, text_of, usage

from bident.errors import Code, ServeError
from bident.text.answering.answer import Answer
from bident.text.answering.composing import Composer
from bident.text.answering.thinking import ThinkSplitter
from bident.text.answering.tools import TextCalls
from bident.wire.text import Message, TextEvent, TextPiece, TextRequest, ToolCall, ToolChoice

HI = [Message("user", "hi")]
WEATHER = {"function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {}}}}}
TOOLED = model(capabilities=frozenset({"completion", "tools"}), chat_template="{{ tools }}")
CALL = '{"name": "weather", "arguments": {"city": "Rome"}}'


def read(script: list[Any], **asked: Any) -> list[TextEvent]:
    of = asked.pop("of", None)
    request = TextRequest(model="m", **({"messages": HI} | asked))
    return asyncio.run(answered(request, ScriptedServer(script).native(), of or model()))


def calls_of(events: list[TextEvent]) -> list[tuple[str, dict[str, Any]]]:
    pieces = [event for event in events if isinstance(event, TextPiece)]
    return [(call.name, dict(call.arguments)) for piece in pieces for call in piece.tool_calls]


def test_pieces_reason_and_usage() -> None:
    events = read([delta("a"), delta("b"), delta("", finish="length"), usage(prompt=7, answer=3, cached=2)])

    end = end_of(events)
    assert text_of(events) == "ab"
    assert end.reason == "length"
    assert end.usage is not None
    assert (end.usage.prompt_tokens, end.usage.cached_tokens, end.usage.answer_tokens) == (7, 2, 3)
    assert (end.usage.prompt_ns, end.usage.answer_ns, end.usage.load_ns) == (1_500_000, 2_500_000, 5)


def test_a_usage_in_every_event_is_not_added_up() -> None:
    parts = [{**delta("a"), "usage": {"prompt_tokens": 4, "completion_tokens": count}} for count in (1, 2, 3)]

    for script in (parts, [*parts, {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 3}}]):
        taken = end_of(read(script)).usage
        assert taken is not None
        assert (taken.prompt_tokens, taken.answer_tokens) == (4, 3)


def test_thinking_that_the_server_tells_apart() -> None:
    events = read([delta("", reasoning_content="hm"), delta("so"), delta("", finish="stop")])

    assert [(piece.thinking, piece.content) for piece in events if isinstance(piece, TextPiece)] == [
        ("hm", ""),
        ("", "so"),
    ]


def test_chances_have_as_many_others_as_asked() -> None:
    top = [{"token": "a", "bytes": [97], "logprob": -0.1}, {"token": "b", "bytes": [98], "logprob": -2.0}]
    logprobs = {"content": [{"token": "a", "bytes": [97], "logprob": -0.1, "top_logprobs": top}]}
    part = {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": logprobs}]}

    (piece,) = [event for event in read([part], logprobs=True, top_logprobs=1) if isinstance(event, TextPiece)]

    (chance,) = piece.chances
    assert (chance.token, chance.logprob, list(chance.bytes)) == ("a", -0.1, [97])
    assert [other.token for other in chance.top] == ["a"]


def test_the_form_of_infill() -> None:
    chances = [{"token": "x", "bytes": [120], "logprob": -1, "top_logprobs": []}]
    script = [
        {"index": 0, "content": "x", "stop": False, "completion_probabilities": chances},
        {"index": 0, "content": "", "stop": True, "stop_type": "limit", "timings": usage()["timings"]},
    ]

    events = read(script, messages=None, prompt="a", suffix="b", logprobs=True)

    assert text_of(events) == "x"
    assert end_of(events).reason == "length"


def test_calls_that_the_server_reads_come_whole() -> None:
    deltas = [
        {"index": 0, "id": "c1", "function": {"name": "weather", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"city": '}},
        {"index": 0, "function": {"arguments": '"Rome"}'}},
    ]
    script = [*(delta("", tool_calls=[part]) for part in deltas), delta("", finish="tool_calls")]

    events = read(script, tools=[WEATHER], of=TOOLED)

    (piece,) = [event for event in events if isinstance(event, TextPiece)]
    assert list(piece.tool_calls) == [ToolCall("c1", "weather", {"city": "Rome"})]
    assert end_of(events).reason == "tool_calls"


def test_a_call_that_was_cut_is_no_call() -> None:
    part = {"index": 0, "id": "c1", "function": {"name": "weather", "arguments": '{"city": "Ro'}}

    events = read([delta("", tool_calls=[part]), delta("", finish="length")], tools=[WEATHER], of=TOOLED)

    assert calls_of(events) == []
    assert text_of(events) == '{"city": "Ro'
    assert end_of(events).reason == "length"


@pytest.mark.parametrize(
    ("text", "finish", "calls", "left", "reason"),
    [
        (CALL, "stop", [("weather", {"city": "Rome"})], "", "tool_calls"),
        (CALL[:-5], "length", [], CALL[:-5], "length"),
        ('{"name": "news", "arguments": {}}', "stop", [], '{"name": "news", "arguments": {}}', "stop"),
    ],
)
def test_a_forced_call(text: str, finish: str, calls: list[Any], left: str, reason: str) -> None:
    script = [delta(text[:9]), delta(text[9:]), delta("", finish=finish)]

    events = read(script, tools=[WEATHER], of=TOOLED, tool_choice=ToolChoice("required"))

    assert (calls_of(events), text_of(events), end_of(events).reason) == (calls, left, reason)


def test_where_llama_cpp_cannot_read_a_call_the_text_is_read_here() -> None:
    failure = ServeError(Code.INTERNAL, "does not match the expected peg-native format")
    site = ScriptedServer([failure], [delta("Let me see. <tool_call>" + CALL), delta("</tool_call>", finish="stop")])
    request = TextRequest(model="m", messages=HI, tools=[WEATHER])

    events = asyncio.run(answered(request, site.native(), TOOLED))

    assert [path for path, _ in site.streamed] == ["/v1/chat/completions", "/v1/completions"]
    assert calls_of(events) == [("weather", {"city": "Rome"})]
    assert text_of(events) == "Let me see. "
    assert "tools" in site.asked[0][1]


def answer_events(site: ScriptedServer) -> AsyncGenerator[TextEvent, None]:
    request = TextRequest(model="m", messages=HI, tools=[WEATHER])
    return Answer(Composer.of(request, site.native(), TOOLED)).events()


def test_an_error_after_the_first_piece_is_an_error() -> None:
    site = ScriptedServer([delta("a"), ServeError(Code.INTERNAL, "died")])

    async def ask() -> None:
        events = answer_events(site)
        assert text_of([await anext(events)]) == "a"
        with pytest.raises(ServeError, match="died"):
            await anext(events)

    asyncio.run(ask())
    assert site.open == 0


def test_closing_the_answer_closes_the_stream() -> None:
    site = ScriptedServer([delta("a"), delta("b")])

    async def leave() -> int:
        events = answer_events(site)
        await anext(events)
        assert site.open == 1
        await events.aclose()
        return site.open

    assert asyncio.run(leave()) == 0


UNIQUE = {"type": "array", "items": {"enum": ["x", "y"]}, "uniqueItems": True}


@pytest.mark.parametrize(
    ("text", "schema", "problem"),
    [
        ('["x", "x"]', UNIQUE, "$ has the same item twice"),
        ('{"a": 1}', {"not": {"required": ["a"]}}, "$ is what not forbids"),
        ("so {", "json", "it is no JSON"),
    ],
)
def test_what_slips_through_the_schema_is_never_passed_off_as_valid(text: str, schema: Any, problem: str) -> None:
    with pytest.raises(ServeError, match="does not satisfy the format") as caught:
        read([delta(text), delta("", finish="stop")], format=schema)

    assert caught.value.code is Code.INTERNAL
    assert problem in caught.value.message


def test_json_that_a_stop_has_cut_is_not_passed_off_as_whole() -> None:
    events = read([delta('["x'), delta("", finish="stop")], format=UNIQUE, options={"stop": ['"]']})

    assert (text_of(events), end_of(events).reason) == ('["x', "length")


def test_what_was_cut_is_not_checked_but_says_so() -> None:
    events = read([delta('["x", '), delta("", finish="length")], format=UNIQUE)

    assert (text_of(events), end_of(events).reason) == ('["x", ', "length")


def test_nothing_is_written_where_nothing_was_asked_for() -> None:
    events = read([delta("a", finish="length"), usage(answer=1)], options={"num_predict": 0})

    taken = end_of(events).usage
    assert text_of(events) == ""
    assert taken is not None
    assert (taken.prompt_tokens, taken.answer_tokens, end_of(events).reason) == (7, 0, "length")


@pytest.mark.parametrize(
    "part",
    [
        {"choices": 3},
        {"choices": [3]},
        {"choices": [{"delta": "x"}]},
        {"choices": [{"delta": {"tool_calls": [3]}}]},
        {"choices": [{"index": [], "delta": {}}]},
        {"choices": [{"delta": {"content": "x"}, "logprobs": {"content": [{}]}}]},
        {"choices": [], "usage": 3},
    ],
)
def test_what_is_no_answer_is_the_servers_failure(part: dict[str, Any]) -> None:
    with pytest.raises(ServeError, match="no part of an answer") as caught:
        read([part])

    assert caught.value.code is Code.INTERNAL


# ------------------------------------------------------------------ thinking and calls in plain text


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    ("text", "inside", "thinking", "answer"),
    [
        ("<think>\nhm</think>\n\nso", False, "\nhm", "so"),
        ("hm</think>so <think>", True, "hm", "so <think>"),
        ("\n <think>hm", False, "hm", ""),
        ("no <think> here", False, "", "no <think> here"),
        ("<thin", False, "", "<thin"),
        ("<think>a </thinks", False, "a </thinks", ""),
        ("", False, "", ""),
    ],
)
def test_thinking_in_the_text_however_it_is_cut(text: str, inside: bool, thinking: str, answer: str, size: int) -> None:
    splitter = ThinkSplitter(inside=inside)

    parts = [splitter.feed(text[start : start + size]) for start in range(0, len(text), size)] + [splitter.end()]

    assert ("".join(part[0] for part in parts), "".join(part[1] for part in parts)) == (thinking, answer)


TWO = [("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})]


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize(
    ("text", "passed", "calls"),
    [
        (f"Well. <tool_call>\n{CALL}\n</tool_call>", "Well. ", TWO[:1]),
        (f"[TOOL_CALLS] [{CALL}, {CALL.replace('Rome', 'Oslo')}]", "", TWO),
        ('<|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}}', "", TWO[:1]),
        (f"  {CALL}", "", TWO[:1]),
        ('{"function": {"name": "weather", "arguments": "{\\"city\\": \\"Rome\\"}"}}', "", TWO[:1]),
        ('Action:\n```json\n[{"tool_name": "weather", "parameters": {"city": "Rome"}}]\n```', "", TWO[:1]),
        ('{"name": "news", "arguments": {}}', '{"name": "news", "arguments": {}}', []),
        ("a < b and [c] {d}", "a < b and [c] {d}", []),
        ("<tool_call>{broken", "<tool_call>{broken", []),
        ("", "", []),
    ],
)
def test_calls_in_the_text_however_it_is_cut(text: str, passed: str, calls: list[Any], size: int) -> None:
    reader = TextCalls([WEATHER])

    before = "".join(reader.feed(text[start : start + size]) for start in range(0, len(text), size))
    rest, found = reader.end()

    assert before + rest == passed
    assert [(call.name, dict(call.arguments)) for call in found] == calls


def test_brackets_without_an_end_take_no_time() -> None:
    reader = TextCalls([WEATHER])
    reader.feed("{" * 500_000)

    began = time.thread_time()
    assert reader.end() == ("{" * 500_000, [])
    assert time.thread_time() - began < 3.0  # a look at the whole rest for each would be minutes
