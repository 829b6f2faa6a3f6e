"""What the server is sent for a request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from answering_site import ScriptedServer, answered, delta, end_of, model, text_of, usage

from bident.errors import Code, ServeError
from bident.text.answering.composing import Composer, choose_template, conversation
from bident.text.answering.options import checked_options
from bident.text.model import TextModel
from bident.wire.text import Message, TextRequest, ToolChoice

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
HI = [Message("user", "hi")]


def sent(request: TextRequest, of: TextModel | None = None, *, native: bool = True) -> tuple[str, dict[str, Any]]:
    """The path and payload of the one stream that answers ``request``."""
    site = ScriptedServer([delta("x", finish="stop"), usage()])
    server = site.native() if native else site.openai()
    asyncio.run(answered(request, server, of or (model() if native else None)))
    return site.streamed[0]


def refusal(request: TextRequest, of: TextModel | None = None) -> str:
    site = ScriptedServer([delta("x", finish="stop")])
    with pytest.raises(ServeError) as caught:
        asyncio.run(answered(request, site.native(64), of or model()))
    assert caught.value.code is Code.INVALID_ARG
    return caught.value.message


def test_every_default_of_ollama_is_sent() -> None:
    path, payload = sent(TextRequest(model="m", messages=HI))

    assert path == "/v1/chat/completions"
    assert payload["messages"] == [{"role": "user", "content": "hi"}]
    expected = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0}
    assert {name: payload[name] for name in expected} == expected
    assert (payload["seed"], payload["n_keep"], payload["n_predict"], payload["stop"]) == (-1, 4, 40960, [])
    assert payload["cache_prompt"] is True


def test_the_request_goes_before_the_model_and_the_model_before_the_defaults() -> None:
    of = model(parameters={"temperature": 0.1, "top_k": 3, "stop": ["<end>"]})

    _, payload = sent(TextRequest(model="m", messages=HI, options={"top_k": 5, "min_p": None}), of)

    assert (payload["temperature"], payload["top_k"], payload["min_p"]) == (0.1, 5, 0.0)
    assert payload["stop"] == ["<end>"]


@pytest.mark.parametrize(
    ("seed", "expected"), [(7, 7), (-1, -1), (-2, 2**32 - 2), (2**32 - 1, 2**32 - 2), (2**40 + 3, 3)]
)
def test_seeds_are_folded_to_what_llama_cpp_takes(seed: int, expected: int) -> None:
    _, payload = sent(TextRequest(model="m", messages=HI, options={"seed": seed}))

    assert payload["seed"] == expected
    assert payload["cache_prompt"] is (seed == -1)


@pytest.mark.parametrize(("asked", "told"), [(0, 1.0), (1, 1.0), (1.1, 1.1), (0.5, 0.5)])
def test_a_repeat_penalty_of_0_is_none(asked: float, told: float) -> None:
    """LiteLLM puts a client's ``frequency_penalty`` there, which most clients send as 0."""
    _, payload = sent(TextRequest(model="m", messages=HI, options={"repeat_penalty": asked}))

    assert payload["repeat_penalty"] == told


def test_a_repeat_penalty_is_not_negative() -> None:
    said = refusal(TextRequest(model="m", messages=HI, options={"repeat_penalty": -0.5}))

    assert said == 'option "repeat_penalty" must not be negative, and is -0.5; 1 is no penalty'


@pytest.mark.parametrize(("asked", "limit"), [(5, 5), (-1, 40960), (-2, 4096), (10**9, 40960)])
def test_no_answer_is_without_an_end(asked: int, limit: int) -> None:
    _, payload = sent(TextRequest(model="m", messages=HI, options={"num_predict": asked, "repeat_last_n": 10**9}))

    assert payload["n_predict"] == limit
    assert payload["repeat_last_n"] == 4096


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("num_ctx", "4096", "integer"),
        ("seed", 1.5, "integer"),
        ("top_k", True, "integer"),
        ("num_predict", 10**12, "integer"),
        ("temperature", "hot", "float32"),
        ("temperature", float("nan"), "float32"),
        ("stop", "x", "array of strings"),
        ("stop", [1], "array of strings"),
        ("use_mmap", 1, "boolean"),
    ],
)
def test_an_option_of_the_wrong_type_is_named(name: str, value: Any, kind: str) -> None:
    with pytest.raises(ServeError, match=f'option "{name}" must be of type {kind}'):
        checked_options({name: value})


def test_whole_numbers_may_have_a_point_and_what_is_unknown_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert checked_options({"seed": 1.0, "temprature": 0.1, "mirostat": 1, "top_p": None}) == {"seed": 1}

    assert [record.message.split(";")[0] for record in caplog.records] == [
        "option temprature is not known and has no effect"
    ]


def test_logprobs_bias_and_format_are_passed_on() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    request = TextRequest(model="m", messages=HI, logprobs=True, top_logprobs=3, logit_bias={5: -100.0}, format=schema)
    site = ScriptedServer([delta('{"a": 1}', finish="stop"), usage()])

    asyncio.run(answered(request, site.native(), model()))

    payload = site.streamed[0][1]
    assert (payload["logprobs"], payload["top_logprobs"], payload["logit_bias"]) == (True, 3, [[5, -100.0]])
    assert payload["json_schema"] == schema | {"x-guidance": {"lenient": True}}


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ("xml", 'invalid format: "xml"'),
        ({"type": "wat"}, "'wat'"),
        ({"type": 3}, "'3'"),
        ({"properties": {"a": 3}}, "#/properties/a is no schema"),
        ({"anyOf": []}, "#/anyOf is no list of schemas"),
        ({"enum": []}, "#/enum is no list of values"),
        ({"$ref": "#/nope"}, "'#/nope'"),
        ({"$ref": "http://example.com/schema"}, "not in the schema"),
        ({"pattern": "(?<=a)b"}, "looks around or back"),
    ],
)
def test_a_format_that_is_none_is_refused_in_ollamas_words(asked: Any, problem: str) -> None:
    message = refusal(TextRequest(model="m", messages=HI, format=asked))

    assert message.startswith("invalid format: ")
    assert problem in message
    assert message.endswith('expected "json" or a valid JSON Schema object')


def test_tools_are_shown_and_a_choice_is_kept_to() -> None:
    of = model(capabilities=frozenset({"completion", "tools"}), chat_template="{{ tools }}")

    path, payload = sent(TextRequest(model="m", messages=HI, tools=[WEATHER], parallel_tool_calls=False), of)
    assert (path, payload["tool_choice"], payload["parallel_tool_calls"]) == ("/v1/chat/completions", "auto", False)
    assert payload["tools"][0]["function"]["name"] == "weather"

    _, payload = sent(TextRequest(model="m", messages=HI, tools=[WEATHER], tool_choice=ToolChoice("none")), of)
    assert "tools" not in payload

    choice = ToolChoice("required")
    path, payload = sent(TextRequest(model="m", messages=HI, tools=[WEATHER], tool_choice=choice), of)
    assert (path, payload["prompt"]) == ("/v1/completions", "user: hi")
    schema = payload["json_schema"]
    assert schema["properties"] == {"name": {"const": "weather"}, "arguments": {"$ref": "#/$defs/tool0"}}
    assert schema["$defs"]["tool0"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("tools", "choice", "problem"),
    [
        ([{"type": "function"}], ToolChoice(), "tools[0] has no function"),
        ([{"function": {"name": "a b"}}], ToolChoice(), "tools[0] has no name"),
        ([{"function": {"name": "a", "parameters": []}}], ToolChoice(), "no JSON schema"),
        ([{"function": {"name": "a", "parameters": {"type": "wat"}}}], ToolChoice(), "'wat'"),
        ([{"function": {"name": "a", "description": 3}}], ToolChoice(), "description that is no text"),
        ([WEATHER], ToolChoice("auto", "news"), "asks for 'news', tools has weather"),
        ([], ToolChoice("required"), "tools is empty"),
    ],
)
def test_tools_that_are_none_are_refused(tools: list[Any], choice: ToolChoice, problem: str) -> None:
    assert problem in refusal(TextRequest(model="m", messages=HI, tools=tools, tool_choice=choice))


def test_the_modelfile_speaks_first() -> None:
    of = model(system="Be kind.", messages=(Message("user", "a"), Message("assistant", "b")))
    own = [Message("system", "Be rude."), Message("user", "hi")]

    assert [m.content for m in conversation(of, TextRequest(model="m", messages=HI))] == ["Be kind.", "a", "b", "hi"]
    assert [m.content for m in conversation(of, TextRequest(model="m", messages=own))] == ["a", "b", "Be rude.", "hi"]
    assert [m.content for m in conversation(of, TextRequest(model="m", prompt="hi", system="S"))] == [
        "S",
        "a",
        "b",
        "hi",
    ]
    assert [m.content for m in conversation(of, TextRequest(model="m", prompt="hi", context=[1]))] == ["hi"]


def test_a_template_of_the_modelfile_is_rendered_here() -> None:
    of = model(template="<{{ .System }}|{{ .Prompt }}>{{ .Response }}", system="S")

    path, payload = sent(TextRequest(model="m", messages=HI), of)

    assert (path, payload["prompt"]) == ("/v1/completions", "<S|hi>")


def test_the_template_in_the_weights_is_used_where_it_can_show_more() -> None:
    of = model(template="{{ .Prompt }}", chat_template="{{ tools }}")

    assert choose_template(of, TextRequest(model="m", messages=HI)) is not None
    assert choose_template(of, TextRequest(model="m", messages=HI, tools=[WEATHER])) is None
    assert choose_template(of, TextRequest(model="m", messages=[Message("user", "hi", images=[b"BM"])])) is None
    assert choose_template(model(template="{{ nope }}", chat_template="x"), TextRequest(model="m")) is None
    with pytest.raises(ServeError, match='function "nope" not defined'):
        choose_template(model(template="{{ nope }}"), TextRequest(model="m"))


def test_raw_prompts_and_tokens_go_as_they_are() -> None:
    path, payload = sent(TextRequest(model="m", prompt="Once", raw=True), model(template="<{{ .Prompt }}>"))
    assert (path, payload["prompt"]) == ("/v1/completions", "Once")

    _, payload = sent(TextRequest(model="m", prompt=[1, 2, 3]))
    assert payload["prompt"] == [1, 2, 3]


def test_a_gap_is_filled_by_the_models_own_tokens_or_the_template() -> None:
    request = TextRequest(model="m", prompt="def f(", suffix="return 1", logprobs=True)

    path, payload = sent(request)
    assert (path, payload["input_prefix"], payload["input_suffix"]) == ("/infill", "def f(", "return 1")
    assert payload["n_probs"] == 1

    path, payload = sent(request, model(template="<pre>{{ .Prompt }}<suf>{{ .Suffix }}<mid>"))
    assert (path, payload["prompt"]) == ("/v1/completions", "<pre>def f(<suf>return 1<mid>")


def test_an_earlier_context_comes_first() -> None:
    site = ScriptedServer([delta("x y", finish="stop"), usage()])
    request = TextRequest(model="m", prompt="and now", context=[9, 8])

    events = asyncio.run(answered(request, site.native(), model()))

    assert site.streamed[0][1]["prompt"] == [9, 8, 0, 1, 2]
    assert list(end_of(events).context) == [9, 8, 0, 1, 2, 3]


def test_pictures_become_data_and_nothing_else_does() -> None:
    of = model(capabilities=frozenset({"completion", "vision"}))
    png = b"\x89PNG\r\n\x1a\n123"

    _, payload = sent(TextRequest(model="m", prompt="what?", images=[png]), of)

    text, image = payload["messages"][0]["content"]
    assert text == {"type": "text", "text": "what?"}
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")
    assert "an image is none" in refusal(TextRequest(model="m", prompt="a", images=[b"http://example.com/a.png"]), of)


def test_thinking_is_passed_to_the_template() -> None:
    of = model(capabilities=frozenset({"completion", "thinking"}))

    said = [
        sent(TextRequest(model="m", messages=HI, think=think), of)[1]["chat_template_kwargs"]
        for think in (None, False, "high")
    ]

    assert said == [
        {"enable_thinking": True},
        {"enable_thinking": False},
        {"enable_thinking": True, "reasoning_effort": "high"},
    ]


def test_another_server_gets_what_openai_knows_and_only_what_was_asked_for() -> None:
    request = TextRequest(
        model="m",
        messages=HI,
        options={"temperature": 0.5, "num_predict": 9, "num_ctx": 100},
        tools=[WEATHER],
        tool_choice=ToolChoice("auto", "weather"),
        think=False,
        count=2,
        logit_bias={1: 2.0},
    )

    path, payload = sent(request, native=False)

    assert path == "/v1/chat/completions"
    assert {name for name in payload if name not in ("messages", "tools")} == {
        *("model", "temperature", "max_tokens", "stream_options", "tool_choice", "parallel_tool_calls"),
        *("reasoning_effort", "n", "logit_bias"),
    }
    assert payload["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert payload["model"] == "gpt"


@pytest.mark.parametrize("asked", [{"messages": HI}, {"prompt": "JSON:", "raw": True}])
def test_another_server_is_told_of_a_format_in_openais_way(asked: dict[str, Any]) -> None:
    site = ScriptedServer([delta("{}", finish="stop")], [delta("{}", finish="stop")])
    for form in ("json", {"type": "object"}):
        asyncio.run(answered(TextRequest(model="m", format=form, **asked), site.openai()))

    said = [payload["response_format"] for _, payload in site.streamed]
    assert said == [
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
    ]


def test_another_server_cannot_go_on_from_tokens() -> None:
    with pytest.raises(ServeError, match="cannot go on from a context") as caught:
        Composer.of(TextRequest(model="m", prompt="x", context=[1]), ScriptedServer().openai(), None)

    assert caught.value.code is Code.UNSUPPORTED


# ------------------------------------------------------------------ what does not fit


def test_the_oldest_messages_are_left_out_and_how_much_is_said() -> None:
    messages = [Message("system", "sys"), *(Message("user", f"{place} " + "word " * 18) for place in range(6))]
    site = ScriptedServer([delta("x", finish="stop"), usage()])

    events = asyncio.run(answered(TextRequest(model="m", messages=messages), site.native(64), model()))

    kept = [message["content"].split()[0] for message in site.streamed[0][1]["messages"]]
    taken = end_of(events).usage
    assert kept == ["sys", "3", "4", "5"]
    assert taken is not None
    assert (taken.truncated_tokens, taken.context_length) == (3 * 20, 64)


def test_a_last_message_that_is_too_long_loses_its_beginning() -> None:
    site = ScriptedServer([delta("x", finish="stop"), usage()])
    messages = [Message("user", "old"), Message("user", "word " * 100)]

    events = asyncio.run(answered(TextRequest(model="m", messages=messages), site.native(64), model()))

    (message,) = site.streamed[0][1]["messages"]
    taken = end_of(events).usage
    assert message["content"].split()[-1] == "w99"
    assert len(message["content"].split()) == 64 - 8 - 1
    assert taken is not None
    assert taken.truncated_tokens == 103 - 56


def test_a_tools_answer_does_not_stay_without_its_question() -> None:
    long = "word " * 30
    messages = [Message("user", long), Message("assistant", long), Message("tool", "sunny"), Message("user", "and?")]
    site = ScriptedServer([delta("x", finish="stop"), usage()])

    asyncio.run(answered(TextRequest(model="m", messages=messages), site.native(30), model()))

    assert [message["role"] for message in site.streamed[0][1]["messages"]] == ["user"]


def test_without_truncate_both_numbers_are_said() -> None:
    message = refusal(TextRequest(model="m", messages=[Message("user", "word " * 100)], truncate=False))

    assert "the input length exceeds the context length" in message
    assert "101 tokens" in message
    assert "the context 64" in message


def test_a_system_message_that_fills_the_context_is_an_error() -> None:
    messages = [Message("system", "word " * 100), Message("user", "hi")]

    assert "system message and the last message" in refusal(TextRequest(model="m", messages=messages))


def test_a_raw_prompt_keeps_its_first_and_last_tokens() -> None:
    site = ScriptedServer([delta("x", finish="stop"), usage()])
    request = TextRequest(model="m", prompt="word " * 100, raw=True, options={"num_keep": 2})

    events = asyncio.run(answered(request, site.native(64), model()))

    tokens = site.streamed[0][1]["prompt"]
    taken = end_of(events).usage
    assert tokens == [0, 1, *range(46, 100)]
    assert taken is not None
    assert taken.truncated_tokens == 44


def test_what_is_hopelessly_long_is_not_even_counted() -> None:
    assert "not even cut" in refusal(TextRequest(model="m", messages=[Message("user", "x" * (5 << 20))]))
    assert "not even cut" in refusal(TextRequest(model="m", prompt="x" * (5 << 20), raw=True))


def test_counting_leaves_nothing_out() -> None:
    request = TextRequest(model="m", messages=[Message("user", "word " * 100)])

    assert asyncio.run(Composer.of(request, ScriptedServer().native(64), model()).count()) == 101


def test_more_answers_than_slots_are_made_in_rounds() -> None:
    first = [delta("a"), delta("b", 1), delta("", 0, "stop"), delta("", 1, "length"), usage(), usage()]
    site = ScriptedServer(first, [delta("c", finish="stop"), usage()])
    request = TextRequest(model="m", messages=HI, count=3, options={"seed": 5})

    events = asyncio.run(answered(request, site.native(slots=2), model()))

    assert [text_of(events, index) for index in range(3)] == ["a", "b", "c"]
    assert [(payload.get("n"), payload["seed"]) for _, payload in site.streamed] == [(2, 5), (None, 7)]
    taken = end_of(events).usage
    assert taken is not None
    assert (taken.prompt_tokens, taken.answer_tokens) == (7, 9)
