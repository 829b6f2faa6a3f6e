"""The engine's answers as OpenAI writes them: chats and completions, whole and in chunks (its API reference)."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson

from bident.text.doors.collected import Answer, Collected
from bident.text.doors.ollama_answers import extras
from bident.wire.text import TextEnd, TextEvent, TextPiece, TokenChance, ToolCall, Usage

_FINGERPRINT = "fp_ollama"
"""What Ollama gives, and some of its clients expect."""


class ChatWriter:
    """Writes the answer to one request of ``/v1/chat/completions``; ``model`` is the name as it was asked for."""

    def __init__(self, model: str, *, with_usage: bool = False) -> None:
        self._head = _head(model, "chatcmpl")
        self._with_usage = with_usage
        self._begun: set[int] = set()
        self._calls: dict[int, int] = {}

    def whole(self, collected: Collected) -> dict[str, Any]:
        """The answer in one object."""
        choices = [_chat_choice(index, answer) for index, answer in sorted(collected.answers.items())]
        head = self._head | {"object": "chat.completion", "choices": choices}
        return head | {"usage": usage_object(collected.usage)} | extras(collected.usage)

    async def chunks(self, events: AsyncIterator[TextEvent]) -> AsyncIterator[dict[str, Any]]:
        """One chunk for each event, and one with the usage where it was asked for."""
        usage = Usage()
        async for event in events:
            if event.index not in self._begun:
                self._begun.add(event.index)
                yield self._chunk(event.index, {"role": "assistant", "content": ""})
            if isinstance(event, TextPiece):
                yield self._chunk(event.index, self._delta(event), chances=event.chances)
                continue
            usage = event.usage or usage
            yield self._chunk(event.index, {}, reason=self._reason(event)) | extras(event.usage or Usage())
        if self._with_usage:
            yield self._head | {"object": "chat.completion.chunk", "choices": [], "usage": usage_object(usage)}

    def _reason(self, end: TextEnd) -> str:
        return finish_reason(end.reason, bool(self._calls.get(end.index)))

    def _delta(self, piece: TextPiece) -> dict[str, Any]:
        delta: dict[str, Any] = {}
        if piece.content or not (piece.thinking or piece.tool_calls):
            delta["content"] = piece.content
        if piece.thinking:
            delta["reasoning"] = piece.thinking
        if piece.tool_calls:
            first = self._calls.get(piece.index, 0)
            self._calls[piece.index] = first + len(piece.tool_calls)
            delta["tool_calls"] = [
                {"index": first + place} | call_object(call) for place, call in enumerate(piece.tool_calls)
            ]
        return delta

    def _chunk(
        self, index: int, delta: dict[str, Any], *, reason: str | None = None, chances: Sequence[TokenChance] = ()
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "delta": delta, "finish_reason": reason}
        if chances:
            choice["logprobs"] = _chat_logprobs(chances)
        return self._head | {"object": "chat.completion.chunk", "choices": [choice]}


class CompletionWriter:
    """Writes the answer to one request of ``/v1/completions``; ``echo`` is a prompt to begin each answer with."""

    def __init__(self, model: str, *, echo: str = "", with_usage: bool = False) -> None:
        self._head = _head(model, "cmpl") | {"object": "text_completion"}
        self._echo = echo
        self._with_usage = with_usage
        self._written: dict[int, int] = {}

    def whole(self, collected: Collected) -> dict[str, Any]:
        """The answer in one object."""
        choices = [
            self._choice(index, answer.content, answer.chances, finish_reason(answer.reason))
            for index, answer in sorted(collected.answers.items())
        ]
        head = self._head | {"choices": choices, "usage": usage_object(collected.usage)}
        return head | extras(collected.usage)

    async def chunks(self, events: AsyncIterator[TextEvent]) -> AsyncIterator[dict[str, Any]]:
        """One chunk for each event, and one with the usage where it was asked for."""
        usage = Usage()
        async for event in events:
            if isinstance(event, TextPiece):
                yield self._head | {"choices": [self._choice(event.index, event.content, event.chances)]}
                continue
            usage = event.usage or usage
            choice = self._choice(event.index, "", (), finish_reason(event.reason))
            yield self._head | {"choices": [choice]} | extras(event.usage or Usage())
        if self._with_usage:
            yield self._head | {"choices": [], "usage": usage_object(usage)}

    def _choice(
        self, index: int, text: str, chances: Sequence[TokenChance], reason: str | None = None
    ) -> dict[str, Any]:
        if index not in self._written:
            self._written[index] = len(self._echo)
            text = self._echo + text
        choice: dict[str, Any] = {"text": text, "index": index, "logprobs": None, "finish_reason": reason}
        if chances:
            choice["logprobs"] = _completion_logprobs(chances, self._written[index])
        self._written[index] += sum(len(chance.token) for chance in chances)
        return choice


def finish_reason(reason: str, called: bool = False) -> str:
    """OpenAI's word for the end of an answer, in which tools were ``called`` or not."""
    return "tool_calls" if called or reason == "tool_calls" else "length" if reason == "length" else "stop"


def usage_object(usage: Usage) -> dict[str, Any]:
    """Tokens asked and answered."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.answer_tokens,
        "total_tokens": usage.prompt_tokens + usage.answer_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def call_object(call: ToolCall) -> dict[str, Any]:
    """A call of a tool, with its arguments as JSON in a text."""
    function = {"name": call.name, "arguments": arguments_text(call)}
    return {"id": call.id or f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


def arguments_text(call: ToolCall) -> str:
    """Arguments as JSON."""
    return orjson.dumps(dict(call.arguments)).decode()


def _head(model: str, prefix: str) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": _FINGERPRINT,
    }


def _chat_choice(index: int, answer: Answer) -> dict[str, Any]:
    # As OpenAI does: a message that only calls tools has no content, rather than an empty one.
    content = None if answer.tool_calls and not answer.content else answer.content
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if answer.thinking:
        message["reasoning"] = answer.thinking
    if answer.tool_calls:
        message["tool_calls"] = [call_object(call) for call in answer.tool_calls]
    reason = finish_reason(answer.reason, bool(answer.tool_calls))
    choice = {"index": index, "message": message, "finish_reason": reason}
    return choice | {"logprobs": _chat_logprobs(answer.chances) if answer.chances else None}


def _chat_logprobs(chances: Sequence[TokenChance]) -> dict[str, Any]:
    content = [_chance(chance) | {"top_logprobs": [_chance(each) for each in chance.top]} for chance in chances]
    return {"content": content, "refusal": None}


def _chance(chance: TokenChance) -> dict[str, Any]:
    return {"token": chance.token, "logprob": chance.logprob, "bytes": [*chance.bytes]}


def _completion_logprobs(chances: Sequence[TokenChance], offset: int) -> dict[str, Any]:
    """The older shape; ``offset`` is where in the answer the first token begins, in characters."""
    offsets = []
    for chance in chances:
        offsets.append(offset)
        offset += len(chance.token)
    return {
        "tokens": [chance.token for chance in chances],
        "token_logprobs": [chance.logprob for chance in chances],
        "top_logprobs": [{each.token: each.logprob for each in chance.top} for chance in chances],
        "text_offset": offsets,
    }
