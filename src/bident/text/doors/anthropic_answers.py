"""The engine's answers as Anthropic writes them: messages, whole and as events (its "Streaming messages" page)."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

from bident.text.doors.collected import Collected
from bident.text.doors.ollama_answers import extras
from bident.text.doors.openai_answers import arguments_text
from bident.wire.text import TextEvent, TextPiece, ToolCall, Usage

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageWriter:
    """Writes the answer to one request of ``/v1/messages``; ``model`` is the name as it was asked for."""

    def __init__(self, model: str) -> None:
        self._head: dict[str, Any] = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }
        self._blocks = 0
        self._open = ""
        self._called = False

    def whole(self, collected: Collected) -> dict[str, Any]:
        """The answer in one object."""
        answer = collected.first
        blocks: list[dict[str, Any]] = []
        if answer.thinking:
            blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": ""})
        if answer.content or not answer.tool_calls:
            blocks.append({"type": "text", "text": answer.content})
        blocks += [_call_block(call) | {"input": dict(call.arguments)} for call in answer.tool_calls]
        end = _end(answer.reason, bool(answer.tool_calls))
        return self._head | {"content": blocks, "usage": _usage(collected.usage)} | end | extras(collected.usage)

    async def events(self, events: AsyncIterator[TextEvent]) -> AsyncIterator[dict[str, Any]]:
        """One or more objects for each event of the engine, each with its ``type``."""
        nothing: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage(Usage())}
        yield {"type": "message_start", "message": self._head | nothing}
        reason, usage = "stop", Usage()
        async for event in events:
            if isinstance(event, TextPiece):
                for each in self._piece(event):
                    yield each
            else:
                reason, usage = event.reason, event.usage or usage
        if not self._blocks:
            for each in self._begin("text", {"type": "text", "text": ""}):
                yield each
        for each in self._close():
            yield each
        delta = _end(reason, self._called) | extras(usage)
        yield {"type": "message_delta", "delta": delta, "usage": _usage(usage)}
        yield {"type": "message_stop"}

    def _piece(self, piece: TextPiece) -> Iterator[dict[str, Any]]:
        if piece.thinking:
            yield from self._begin("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            yield self._delta({"type": "thinking_delta", "thinking": piece.thinking})
        if piece.content:
            yield from self._begin("text", {"type": "text", "text": ""})
            yield self._delta({"type": "text_delta", "text": piece.content})
        for call in piece.tool_calls:
            self._called = True
            yield from self._close()
            yield from self._begin("tool_use", _call_block(call) | {"input": {}})
            yield self._delta({"type": "input_json_delta", "partial_json": arguments_text(call)})
            yield from self._close()

    def _begin(self, kind: str, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Have a block of that kind open; one of another kind is closed for it."""
        if self._open == kind:
            return
        yield from self._close()
        self._open = kind
        yield {"type": "content_block_start", "index": self._blocks, "content_block": block}
        self._blocks += 1

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._blocks - 1, "delta": delta}

    def _close(self) -> Iterator[dict[str, Any]]:
        if self._open:
            self._open = ""
            yield {"type": "content_block_stop", "index": self._blocks - 1}


def _call_block(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id or f"toolu_{uuid.uuid4().hex[:24]}", "name": call.name}


def _end(reason: str, called: bool) -> dict[str, Any]:
    return {"stop_reason": "tool_use" if called else _STOP_REASONS.get(reason, "end_turn"), "stop_sequence": None}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.answer_tokens,
    }
