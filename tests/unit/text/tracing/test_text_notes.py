"""What a span says of an answer, and which answers have one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from bident.errors import Code, ServeError, SettingsError
from bident.observe.trace_settings import Picks, TraceSetting
from bident.settings import parse_text_args
from bident.text.tracing.clients import Client, Clients, client
from bident.text.tracing.notes import Notes
from bident.text.tracing.spans import TextSpans
from bident.wire.text import Embeddings, EmbedRequest, Message, TextEnd, TextPiece, TextRequest, ToolCall, Usage
from bident.wire.trace_context import TraceContext

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
USAGE = Usage(prompt_tokens=5, cached_tokens=2, answer_tokens=3, load_ns=7_000_000, truncated_tokens=1)


def noted(*, with_text: bool = False, counts: bool = True, operation: str = "chat") -> Notes:
    return Notes(operation, "m", with_text=with_text, counts=counts)


def parts(notes: Notes, side: str) -> Any:
    return json.loads(str(notes.attributes()[f"gen_ai.{side}.messages"]))


def test_parameters_are_said_and_the_prompt_is_not() -> None:
    notes = noted()
    options = {"temperature": 0.5, "num_predict": 9, "seed": 1, "top_k": 2, "stop": ["secret"], "num_ctx": 5}
    notes.asked(TextRequest(model="m", prompt="secret", system="secret", options=options, count=2, format="json"))
    notes.see(TextPiece(content="secret"))
    said = notes.attributes()

    assert said["gen_ai.request.temperature"] == 0.5
    assert (said["gen_ai.request.max_tokens"], said["gen_ai.request.seed"], said["gen_ai.request.top_k"]) == (9, 1, 2)
    assert (said["gen_ai.request.choice.count"], said["gen_ai.output.type"]) == (2, "json")
    assert "secret" not in str(said)


def test_text_that_is_wanted() -> None:
    notes = noted(with_text=True)
    call = ToolCall("c1", "look", {"where": "here"})
    messages = [
        Message("system", "be brief"),
        Message("user", "look", images=[b"1234"]),
        Message("assistant", tool_calls=[call]),
        Message("tool", "nothing", tool_call_id="c1"),
    ]
    notes.asked(TextRequest(model="m", messages=messages, options={"stop": "x"}))
    notes.see(TextPiece(thinking="hm"))
    notes.see(TextPiece(content="All "))
    notes.see(TextPiece(content="done \ud83d", tool_calls=[call]))
    notes.see(TextEnd(reason="stop", usage=USAGE))

    system, user, assistant, tool = parts(notes, "input")
    called = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"where": "here"}}
    assert system == {"role": "system", "parts": [{"type": "text", "content": "be brief"}]}
    assert [part["content"] for part in user["parts"]] == ["look", "[picture of 4 bytes]"]
    assert assistant["parts"] == [called]
    assert tool["parts"] == [{"type": "tool_call_response", "id": "c1", "response": "nothing"}]
    (answer,) = parts(notes, "output")
    thought, text, asked = answer["parts"]
    assert thought == {"type": "reasoning", "content": "hm"}
    assert text["content"].startswith("All done ")
    assert (asked, answer["finish_reason"]) == (called, "stop")
    assert notes.attributes()["gen_ai.request.stop_sequences"] == ["x"]


def test_long_text_is_cut() -> None:
    notes = noted(with_text=True)
    notes.asked(TextRequest(model="m", prompt="x" * 50_000))

    assert parts(notes, "input")[0]["parts"][0]["content"] == "x" * 20_000 + "... [30000 more characters]"


def test_tokens_are_usage_or_only_known_of() -> None:
    counting, other = noted(), noted(counts=False)
    for notes in (counting, other):
        notes.see(TextEnd(reason="stop", usage=USAGE))
    counted, known = counting.attributes(), other.attributes()

    assert counted["langfuse.observation.type"] == "generation"
    assert (counted["gen_ai.usage.input_tokens"], counted["gen_ai.usage.output_tokens"]) == (5, 3)
    assert counted["gen_ai.usage.cache_read.input_tokens"] == 2
    assert counted["langfuse.observation.metadata.load_ms"] == 7
    assert counted["langfuse.observation.metadata.truncated_tokens"] == 1
    assert known["langfuse.observation.type"] == "span"
    assert known["langfuse.observation.metadata.output_tokens"] == 3
    assert not [name for name in known if name.startswith("gen_ai.usage")]


def test_an_embedding() -> None:
    asked = EmbedRequest(model="m", inputs=["secret", [1, 2]])
    for with_text in (False, True):
        notes = noted(operation="embeddings", with_text=with_text)
        notes.embedded(asked, Embeddings([[0.0, 1.0]] * 2, USAGE))
        said = notes.attributes()
        assert said["langfuse.observation.type"] == "embedding"
        assert said["gen_ai.embeddings.dimension.count"] == 2
        assert said["gen_ai.usage.input_tokens"] == 5
        assert said.get("langfuse.observation.input") == ('["secret", [1, 2]]' if with_text else None)


class Export:
    """Keeps what is exported."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []

    def has_room(self, count: int) -> bool:
        return True

    def put(self, place: TraceContext, name: str, start_ns: int, end_ns: int, **said: Any) -> None:
        self.spans.append({"place": place, "name": name, **said})


@pytest.fixture
def export() -> Export:
    return Export()


def spans(export: Export, rate: int = 1, usage: str = "auto", *, with_text: bool = False) -> TextSpans:
    return TextSpans(export, Picks(TraceSetting(rate=rate)), with_text=with_text, usage=usage)  # type: ignore[arg-type]


def within_a_trace(block: Any, header: tuple[bytes, bytes] = (b"traceparent", PARENT)) -> None:
    """Run ``block`` as part of a request whose client has a span, or sends another ``header``."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        block()

    asyncio.run(Clients(app)({"headers": [header]}, None, None))  # type: ignore[arg-type]
    assert client() == Client()


def test_one_in_so_many_and_all_that_are_part_of_a_trace(export: Export) -> None:
    made = spans(export, rate=3)

    def ask() -> None:
        with made.noting("chat", "m"):
            pass

    for _ in range(6):
        ask()
    assert len(export.spans) == 2
    for _ in range(2):
        within_a_trace(ask)
    assert len(export.spans) == 4
    assert f"{export.spans[-1]['place'].parent_id:016x}" == "b7ad6b7169203331"
    assert "langfuse.trace.name" not in export.spans[-1]["attributes"]
    assert export.spans[0]["attributes"]["langfuse.trace.name"] == "chat m"


@pytest.mark.parametrize(
    ("usage", "alone", "within"),
    [("auto", "generation", "span"), ("always", "generation", "generation"), ("never", "span", "span")],
)
def test_who_counts(export: Export, usage: str, alone: str, within: str) -> None:
    made = spans(export, usage=usage)

    def ask() -> None:
        with made.noting("chat", "m"):
            pass

    ask()
    within_a_trace(ask, (b"user-agent", b"curl/8"))
    within_a_trace(ask)
    within_a_trace(ask, (b"user-agent", b"litellm/1.106.12"))
    kinds = [each["attributes"]["langfuse.observation.type"] for each in export.spans]
    assert kinds == [alone, alone, within, within]


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ServeError(Code.NOT_FOUND, "secret"), "not_found"),
        (ValueError("secret"), "internal"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
def test_how_it_failed(export: Export, failure: BaseException, code: str) -> None:
    for with_text in (False, True):
        with pytest.raises(type(failure)), spans(export, with_text=with_text).noting("chat", "m"):
            raise failure
    quiet, said = export.spans

    assert quiet["attributes"]["error.type"] == said["attributes"]["error.type"] == code
    assert (quiet["error"], bool(said["error"])) == ("", True)


def test_who_leaves_with_everything_has_not_failed(export: Export) -> None:
    def answer() -> Iterator[None]:
        with spans(export).noting("chat", "m") as notes:
            assert notes is not None
            notes.see(TextEnd(reason="stop", usage=USAGE))
            yield

    answering = answer()
    next(answering)
    answering.close()  # type: ignore[attr-defined]
    assert export.spans[0]["error"] is None


def test_loading_leaves_no_span(export: Export) -> None:
    with spans(export).noting("chat", "m") as notes:
        assert notes is not None
        notes.see(TextEnd(reason="load", usage=Usage()))

    assert export.spans == []


def test_settings_that_ask_for_nothing_or_for_what_cannot_be() -> None:
    def start(*options: str) -> TextSpans | None:
        return TextSpans.start(parse_text_args([f"--trace-config={option}" for option in options], {}))

    assert start() is None
    assert start("mode=opentelemetry", "level=OFF") is None
    for options in (("level=TIMESTAMPS",), ("triton,file=t",)):
        with pytest.raises(SettingsError, match="--trace-config mode=opentelemetry"):
            start(*options)
    made = start("mode=opentelemetry")
    assert made is not None
    made.close(0.1)
