"""What the server streams, as events of the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from bident.errors import Code, ServeError
from bident.text.answering.schema import Schema, violation
from bident.text.answering.thinking import ThinkSplitter
from bident.text.answering.tools import TextCalls, new_id, read_arguments, read_call
from bident.wire.text import TextEnd, TextEvent, TextPiece, TokenChance, ToolCall, Usage

_REASONS = {"length": "length", "limit": "length", "tool_calls": "tool_calls", "function_call": "tool_calls"}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How to read an answer.

    ``tools`` are those whose calls are looked for in the text (``forced``: the text is the call and nothing
    else); a server that reads them itself needs none here. ``thinking`` is whether the text holds thinking
    (None: the server tells it apart), True if the prompt has begun it. ``schema`` is what the whole answer must
    satisfy, True for any JSON.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    forced: bool = False
    thinking: bool | None = None
    schema: Schema | None = None
    stops: bool = False
    """Texts were given that end the answer: one of them may have cut the JSON that ``schema`` asks for."""
    top: int = 0
    silent: bool = False
    """Nothing was asked to be generated (``num_predict`` 0); llama.cpp gives one token all the same."""


@dataclass
class _Call:
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class _Choice:
    """One of the answers as it comes."""

    reading: Reading
    index: int
    reason: str = ""
    calls: dict[int, _Call] = field(default_factory=dict)
    chances: list[TokenChance] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    splitter: ThinkSplitter | None = None
    text_calls: TextCalls | None = None

    def __post_init__(self) -> None:
        if self.reading.thinking is not None:
            self.splitter = ThinkSplitter(inside=self.reading.thinking)
        if self.reading.tools and not self.reading.forced:
            self.text_calls = TextCalls(self.reading.tools)

    def feed(self, content: str, thinking: str, chances: Sequence[TokenChance]) -> Iterator[TextPiece]:
        """The pieces that are certain now."""
        if self.reading.silent:
            return
        self.chances.extend(chances)
        if self.splitter is not None:
            thinking, content = self.splitter.feed(content)
        yield from self._pieces(self._passed(content), thinking)

    def end(self) -> Iterator[TextPiece]:
        """The pieces that were waiting. Raises INTERNAL for an answer that ended without satisfying its schema."""
        self.reason = self.reason or "stop"
        thinking, content = self.splitter.end() if self.splitter else ("", "")
        content = self._passed(content)
        calls: list[ToolCall] = []
        if self.text_calls is not None:
            rest, calls = self.text_calls.end()
            content += rest
        elif self.reading.forced:
            content, calls = self._forced()
        broken, more = self._streamed_calls()
        content += broken
        calls += more
        if calls:
            self.reason = "tool_calls" if self.reason == "stop" else self.reason
        elif self.reason == "tool_calls":
            self.reason = "stop"
        yield from self._pieces(content, thinking, calls)
        self._check()

    def add_calls(self, deltas: Any) -> None:
        """Take up parts of calls that the server has read itself."""
        for place, delta in enumerate(deltas if isinstance(deltas, list) else ()):
            call = self.calls.setdefault(delta.get("index", place), _Call())
            function = delta.get("function") or {}
            call.id = call.id or delta.get("id") or ""
            call.name += function.get("name") or ""
            call.arguments += function.get("arguments") or ""

    def _passed(self, content: str) -> str:
        if self.text_calls is not None:
            return self.text_calls.feed(content)
        if self.reading.forced:
            self.content.append(content)
            return ""
        return content

    def _pieces(self, content: str, thinking: str, calls: Sequence[ToolCall] = ()) -> Iterator[TextPiece]:
        if not (content or thinking or calls or self.chances):
            return
        if self.reading.schema is not None:
            self.content.append(content)
        chances, self.chances = tuple(self.chances), []
        yield TextPiece(self.index, content, thinking, tuple(calls), chances)

    def _forced(self) -> tuple[str, list[ToolCall]]:
        """The call that the whole answer is. One that was cut is no call: it stays the text it is."""
        text = "".join(self.content)
        call = read_call(text, self.reading.tools)
        return ("", [call]) if call else (text, [])

    def _streamed_calls(self) -> tuple[str, list[ToolCall]]:
        """The calls that the server has read; of those whose arguments were cut, the text."""
        broken, calls = "", []
        for _, call in sorted(self.calls.items()):
            arguments = read_arguments(call.arguments)
            if arguments is None or not call.name:
                broken += call.arguments
            else:
                calls.append(ToolCall(call.id or new_id(), call.name, arguments))
        return broken, calls

    def _check(self) -> None:
        if self.reading.schema is None or self.reason != "stop":
            return
        try:
            problem = violation(orjson.loads("".join(self.content)), self.reading.schema)
        except orjson.JSONDecodeError:
            problem = "it is no JSON"
            if self.reading.stops:
                self.reason = "length"
                return
        if problem:
            raise ServeError(
                Code.INTERNAL,
                f"the answer does not satisfy the format: {problem}; ask again, or leave out what the model "
                "cannot be kept to while it writes (not, uniqueItems, if)",
            )


class AnswerReader:
    """Reads one stream, of llama.cpp or of another server of OpenAI's API, chats and completions alike.

    ``first`` is the number of its first answer.
    """

    def __init__(self, reading: Reading, first: int = 0) -> None:
        self._reading = reading
        self._first = first
        self._choices: dict[int, _Choice] = {}
        self._usage: dict[int, Usage] = {}
        self._totals: list[Usage] = []
        self.began = False
        """Whether anything of the answer has been given out."""

    def feed(self, document: Mapping[str, Any]) -> Iterator[TextPiece]:
        """The pieces that ``document``, one object of the stream, completes."""
        try:
            yield from self._feed(document)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ServeError(Code.INTERNAL, f"the model's server sent what is no part of an answer: {error}") from None

    def end(self) -> Iterator[TextEvent]:
        """The last pieces, and the end of each answer but for the usage and context of the last."""
        self._choices = self._choices or {0: _Choice(self._reading, self._first)}
        for _, choice in sorted(self._choices.items()):
            yield from choice.end()
        for _, choice in sorted(self._choices.items()):
            yield TextEnd(choice.index, choice.reason)

    @property
    def usage(self) -> Usage:
        """What all answers took together; the prompt counts once."""
        parts = self._totals or list(self._usage.values()) or [Usage()]
        return Usage(
            prompt_tokens=max(part.prompt_tokens for part in parts),
            cached_tokens=min(part.cached_tokens for part in parts),
            prompt_ns=max(part.prompt_ns for part in parts),
            answer_tokens=0 if self._reading.silent else sum(part.answer_tokens for part in parts),
            answer_ns=max(part.answer_ns for part in parts),
        )

    def _feed(self, document: Mapping[str, Any]) -> Iterator[TextPiece]:
        self._account(document)
        choices = document.get("choices") or []
        if "content" in document and not choices:
            choices = [_native_choice(document)]
        for part in choices:
            choice = self._choice(part.get("index", 0))
            choice.reason = _reason(part.get("finish_reason")) or choice.reason
            delta = part.get("delta") or {"content": part.get("text")}
            choice.add_calls(delta.get("tool_calls"))
            thinking = delta.get("reasoning_content") or delta.get("reasoning") or ""
            chances = self._chances(part.get("logprobs"))
            for piece in choice.feed(delta.get("content") or "", thinking, chances):
                self.began = True
                yield piece

    def _choice(self, index: int) -> _Choice:
        if index not in self._choices:
            self._choices[index] = _Choice(self._reading, self._first + index)
        return self._choices[index]

    def _account(self, document: Mapping[str, Any]) -> None:
        usage, timings = document.get("usage") or {}, document.get("timings") or {}
        if not usage and not timings:
            return
        cached = timings.get("cache_n", (usage.get("prompt_tokens_details") or {}).get("cached_tokens")) or 0
        prompt = timings["prompt_n"] + cached if "prompt_n" in timings else usage.get("prompt_tokens") or 0
        taken = Usage(
            prompt_tokens=prompt,
            cached_tokens=cached,
            prompt_ns=int(timings.get("prompt_ms", 0) * 1e6),
            answer_tokens=timings.get("predicted_n", usage.get("completion_tokens")) or 0,
            answer_ns=int(timings.get("predicted_ms", 0) * 1e6),
        )
        choices = document.get("choices")
        if choices:
            self._usage[choices[0].get("index", 0)] = taken  # so far: a later one of this answer includes it
        else:
            self._totals.append(taken)

    def _chances(self, logprobs: Any) -> list[TokenChance]:
        found = (logprobs or {}).get("content") or []
        return [_chance(item, item.get("top_logprobs", ())[: self._reading.top]) for item in found]


def _native_choice(document: Mapping[str, Any]) -> dict[str, Any]:
    """An object of ``/infill`` as a choice of OpenAI's completions."""
    return {
        "index": document.get("index", 0),
        "text": document["content"],
        "finish_reason": document.get("stop_type") if document.get("stop") else None,
        "logprobs": {"content": document.get("completion_probabilities")},
    }


def _reason(said: Any) -> str:
    return _REASONS.get(said, "stop") if said else ""


def _chance(item: Mapping[str, Any], top: Sequence[Mapping[str, Any]] = ()) -> TokenChance:
    return TokenChance(
        item["token"], float(item["logprob"]), tuple(item.get("bytes") or ()), tuple(_chance(each) for each in top)
    )
