"""The text engine with real models: what Ollama's and OpenAI's clients ask for, asked without a door."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest
from real_library import ROOT, pulled

from bident.errors import Code, ServeError
from bident.text.engine import TextEngine
from bident.text.runner.limits import Limits
from bident.text.runner.residency import Residency
from bident.text.store.library import Library
from bident.wire.text import EmbedRequest, Message, TextEnd, TextEvent, TextPiece, TextRequest, ToolCall, ToolChoice

T = TypeVar("T")

CONTEXT = 512
GREEDY = {"temperature": 0, "num_predict": 8}
HI = [Message("user", "Say hi.")]
TOOL_TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>system\\nTools:\\n' }}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}"
    "{{- '\\nCall one within <tool_call></tool_call>:\\n<tool_call>\\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n\' }}{%- endif %}'
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.content %}{{- message.content }}{%- endif %}"
    '{%- if message.tool_calls %}{%- for call in message.tool_calls %}{{- \'\\n<tool_call>\\n{"name": "\' }}'
    '{{- call.function.name }}{{- \'", "arguments": \' }}{{- call.function.arguments | tojson }}'
    "{{- '}\\n</tool_call>' }}{%- endfor %}{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
        },
    },
}


class Site:
    """An engine on a loop of its own."""

    def __init__(self, files: list[Path]) -> None:
        self.loop = asyncio.new_event_loop()
        self.residency = Residency(Limits(context_length=CONTEXT))
        self.library = Library(ROOT, files=files)
        self.engine = TextEngine(self.library, self.residency)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 100))

    def events(self, **asked: Any) -> list[TextEvent]:
        request = TextRequest(**({"model": "smollm2", "options": GREEDY} | asked))

        async def all_of() -> list[TextEvent]:
            return [event async for event in self.engine.answer(request)]

        return self.run(all_of())

    async def loaded(self) -> set[str]:
        return {each.model.name.model for each in self.residency.running()}

    def close(self) -> None:
        self.run(self.residency.close())
        self.run(self.library.close())
        self.loop.close()


@pytest.fixture(scope="module")
def site(smollm2_weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An engine with ``smollm2``, ``tooled`` (the same weights, with a chat template for tools) and ``minilm``."""
    pulled("minilm")
    folder = tmp_path_factory.mktemp("engine")
    plain, tooled = folder / "smollm2.gguf", folder / "tooled.gguf"
    plain.symlink_to(smollm2_weights)
    command = [sys.executable, "-m", "gguf.scripts.gguf_new_metadata", "--force", "--chat-template", TOOL_TEMPLATE]
    subprocess.run([*command, str(smollm2_weights), str(tooled)], check=True, capture_output=True)
    site = Site([plain, tooled])
    yield site
    site.close()


def text_of(events: list[TextEvent], index: int = 0) -> str:
    return "".join(event.content for event in events if isinstance(event, TextPiece) and event.index == index)


def calls_of(events: list[TextEvent]) -> list[ToolCall]:
    return [call for event in events if isinstance(event, TextPiece) for call in event.tool_calls]


def end_of(events: list[TextEvent]) -> TextEnd:
    assert isinstance(events[-1], TextEnd)
    return events[-1]


def test_a_chat_comes_in_pieces_and_says_what_it_took(site: Site) -> None:
    events = site.events(messages=HI)

    end = end_of(events)
    assert len(events) > 3
    assert text_of(events).strip()
    assert end.reason == "length"
    assert end.usage is not None
    assert end.usage.answer_tokens == 8
    assert end.usage.prompt_tokens == site.run(site.engine.count_tokens(TextRequest(model="smollm2", messages=HI)))
    assert end.usage.context_length == CONTEXT
    assert min(end.usage.prompt_ns, end.usage.answer_ns) > 0


def test_the_same_seed_gives_the_same_answer(site: Site) -> None:
    asked = {"messages": HI, "options": {"seed": 11, "temperature": 1.0, "num_predict": 12}}

    assert text_of(site.events(**asked)) == text_of(site.events(**asked))


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("keyword", [{}, {"uniqueItems": True}, {"not": {"type": "string"}}])
def test_an_answer_keeps_to_a_schema_even_with_keywords_llama_cpp_does_not_know(
    site: Site, raw: bool, keyword: dict[str, Any]
) -> None:
    schema = {"type": "array", "items": {"const": 7}, "minItems": 1, "maxItems": 1, **keyword}

    events = site.events(prompt="Numbers:", raw=raw, format=schema, options={"num_predict": 60, "temperature": 0})

    assert end_of(events).reason == "length" or orjson.loads(text_of(events)) == [7]


def test_characters_of_several_tokens_come_whole_and_stop_strings_never(site: Site) -> None:
    events = site.events(prompt="Rocket:", raw=True, format={"const": "a🚀é🚀"}, options={"num_predict": 40})
    assert orjson.loads(text_of(events)) == "a🚀é🚀"
    assert all("\ufffd" not in event.content for event in events if isinstance(event, TextPiece))

    stopped = site.events(prompt="x", raw=True, format={"const": "one two three"}, options={"stop": ["wo th", "zzz"]})
    assert (text_of(stopped), end_of(stopped).reason) == ('"one t', "length")


def test_a_required_call_is_a_call_or_says_that_it_was_cut(site: Site) -> None:
    asked = {"model": "tooled", "messages": [Message("user", "Weather in Rome?")], "tools": [WEATHER]}

    events = site.events(**asked, tool_choice=ToolChoice("required"), options={"num_predict": 60, "temperature": 0})
    (call,) = calls_of(events)
    assert call.name == "weather"
    assert list(call.arguments) == ["city"]
    assert (text_of(events), end_of(events).reason) == ("", "tool_calls")

    cut = site.events(**asked, tool_choice=ToolChoice("required"), options={"num_predict": 5})
    assert (calls_of(cut), end_of(cut).reason) == ([], "length")


def test_a_call_of_its_own_accord_is_read_by_the_models_template(site: Site) -> None:
    messages: list[Message] = []
    for city in ("Paris", "Berlin"):
        call = ToolCall("", "weather", {"city": city})
        messages += [Message("user", f"Weather in {city}?"), Message("assistant", tool_calls=[call])]
        messages += [Message("tool", "sunny", tool_name="weather"), Message("assistant", f"Sunny in {city}.")]
    messages.append(Message("user", "Weather in Rome?"))

    events = site.events(
        model="tooled", messages=messages, tools=[WEATHER], options={"num_predict": 48, "temperature": 0}
    )

    assert [(call.name, call.arguments) for call in calls_of(events)] == [("weather", {"city": "Rome"})]
    assert end_of(events).reason == "tool_calls"


def test_a_template_of_the_requests_own_can_show_tools(site: Site) -> None:
    template = "{{ range .Tools }}{{ .Function }}{{ end }}\nQ: {{ .Prompt }}\nA: {{ .Response }}"

    events = site.events(
        prompt="Weather in Rome?",
        template=template,
        tools=[WEATHER],
        tool_choice=ToolChoice("auto", "weather"),
        options={"num_predict": 60, "temperature": 0},
    )

    assert [call.name for call in calls_of(events)] == ["weather"]


def test_more_answers_than_slots(site: Site) -> None:
    events = site.events(messages=HI, count=5, options={"num_predict": 3, "temperature": 1.5}, logprobs=True)

    ends = [event for event in events if isinstance(event, TextEnd)]
    assert [end.index for end in ends] == [0, 1, 2, 3, 4]
    assert all(text_of(events, index) for index in range(5))
    assert ends[-1].usage is not None
    assert ends[-1].usage.answer_tokens == 15


def test_chances_and_bias(site: Site) -> None:
    (token,) = site.run(site.engine.tokenize("smollm2", " dog", add_special=False))

    events = site.events(prompt="A", raw=True, logprobs=True, top_logprobs=2, logit_bias={token: 100.0})

    chances = [chance for event in events if isinstance(event, TextPiece) for chance in event.chances]
    assert text_of(events) == " dog" * 8
    assert [len(chance.top) for chance in chances] == [2] * 8
    assert all(chance.logprob <= 0 for chance in chances)


def test_what_does_not_fit_is_left_out_and_said(site: Site) -> None:
    messages = [Message("system", "Be brief."), *(Message("user", f"{n} word" * 40) for n in range(9))]

    usage = end_of(site.events(messages=messages, options={"num_predict": 1})).usage
    assert usage is not None
    assert usage.truncated_tokens > 0
    assert usage.prompt_tokens < CONTEXT

    one = end_of(site.events(messages=[Message("user", "word " * 900)], options={"num_predict": 1})).usage
    assert one is not None
    assert CONTEXT - 100 < one.prompt_tokens < CONTEXT
    assert one.truncated_tokens > 900 - CONTEXT

    with pytest.raises(ServeError, match="the input length exceeds the context length: the prompt has 9") as caught:
        site.events(messages=[Message("user", "word " * 900)], truncate=False)
    assert caught.value.code is Code.INVALID_ARG


def test_a_prompt_goes_on_from_an_earlier_context(site: Site) -> None:
    first = end_of(site.events(prompt="My name is Ada."))
    assert first.usage is not None
    assert len(first.context) == first.usage.prompt_tokens + first.usage.answer_tokens

    second = end_of(site.events(prompt="What is my name?", context=first.context, options={"num_predict": 2}))
    assert second.usage is not None
    assert second.usage.prompt_tokens > len(first.context)
    assert list(second.context[: len(first.context)]) == list(first.context)


def test_leaving_an_answer_frees_its_slot(site: Site) -> None:
    async def leave() -> int:
        events = site.engine.answer(TextRequest(model="smollm2", messages=HI, options={"num_predict": 400}))
        await anext(events)
        busy = sum(each.active for each in site.residency.running())
        await events.aclose()
        return busy - sum(each.active for each in site.residency.running())

    assert site.run(leave()) == 1


def test_tokens_and_back(site: Site) -> None:
    tokens = site.run(site.engine.tokenize("smollm2", "Hello, wörld <|im_end|>"))

    assert site.run(site.engine.detokenize("smollm2", tokens)) == "Hello, wörld <|im_end|>"
    for wrong in ([10**8], [-1]):
        with pytest.raises(ServeError) as caught:
            site.run(site.engine.detokenize("smollm2", wrong))
        assert caught.value.code is Code.INVALID_ARG


def test_nothing_asked_loads_and_unloads(site: Site) -> None:
    assert end_of(site.events(messages=[])).reason == "load"
    assert "smollm2" in site.run(site.loaded())
    assert end_of(site.events(prompt="", keep_alive=0)).reason == "unload"
    assert "smollm2" not in site.run(site.loaded())


def test_what_a_model_cannot_do_is_said_before_it_is_loaded(site: Site) -> None:
    for asked, code in (
        ({"model": "nope", "messages": HI}, Code.NOT_FOUND),
        ({"model": "minilm", "messages": HI}, Code.INVALID_ARG),
        ({"messages": HI, "tools": [WEATHER]}, Code.INVALID_ARG),
    ):
        with pytest.raises(ServeError) as caught:
            site.events(**asked)
        assert caught.value.code is code
    with pytest.raises(ServeError, match="does not support embeddings"):
        site.run(site.engine.embed(EmbedRequest(model="smollm2", inputs=["a"])))


def test_embeddings_are_the_same_alone_and_together(site: Site) -> None:
    texts = ["a cat sits on the mat", "the kitten is on the rug", "shares fell sharply", "word " * 600]

    together = site.run(site.engine.embed(EmbedRequest(model="minilm", inputs=texts)))
    alone = site.run(site.engine.embed(EmbedRequest(model="minilm", inputs=texts[1:2])))
    short = site.run(site.engine.embed(EmbedRequest(model="minilm", inputs=texts[:1], dimensions=64)))

    cat, kitten, shares, _ = together.vectors
    assert [len(vector) for vector in together.vectors] == [384] * 4
    assert _cosine(cat, kitten) > 0.5 > _cosine(cat, shares)
    assert _cosine(kitten, alone.vectors[0]) > 0.9999
    assert len(short.vectors[0]) == 64
    assert math.isclose(sum(value**2 for value in short.vectors[0]), 1, rel_tol=1e-6)
    assert together.usage.truncated_tokens > 80

    with pytest.raises(ServeError, match="the input length exceeds the context length: input 0"):
        site.run(site.engine.embed(EmbedRequest(model="minilm", inputs=texts[3:], truncate=False)))


def _cosine(first: Any, second: Any) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True))
