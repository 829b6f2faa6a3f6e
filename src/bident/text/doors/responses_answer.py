"""The engine's answers as OpenAI's Responses API writes them: a list of output items, whole and as events."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from bident.text.doors.collected import Collected
from bident.text.doors.ollama_answers import extras
from bident.text.doors.openai_answers import arguments_text
from bident.wire.text import TextEvent, TextPiece, TextRequest, ToolCall, Usage


class ResponseWriter:
    """Writes the answer to one request of ``/v1/responses``; ``said`` are the fields of its body."""

    def __init__(self, asked: TextRequest, said: Mapping[str, Any]) -> None:
        self._head = _head(asked, said)
        self._output: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        self._texts: list[str] = []
        self._number = 0

    def whole(self, collected: Collected) -> dict[str, Any]:
        """The answer in one object."""
        answer = collected.first
        if answer.thinking:
            self._output.append(_filled(_item("reasoning"), answer.thinking))
        if answer.content or not answer.tool_calls:
            self._output.append(_filled(_item("message"), answer.content))
        self._output += [_call_item(call) for call in answer.tool_calls]
        return self._ended(answer.reason, collected.usage)

    async def events(self, events: AsyncIterator[TextEvent]) -> AsyncIterator[dict[str, Any]]:
        """One or more objects for each event of the engine, each with its ``type`` and number."""
        running = self._head | {"status": "in_progress", "output": []}
        yield self._event("response.created", response=running)
        yield self._event("response.in_progress", response=running)
        reason, usage = "stop", Usage()
        async for event in events:
            if isinstance(event, TextPiece):
                for each in self._piece(event):
                    yield each
            else:
                reason, usage = event.reason, event.usage or usage
        if not self._output and self._open is None:
            for each in self._begin("message"):
                yield each
        for each in self._close():
            yield each
        response = self._ended(reason, usage)
        yield self._event(f"response.{response['status']}", response=response)

    def _piece(self, piece: TextPiece) -> Iterator[dict[str, Any]]:
        for kind, text in (("reasoning", piece.thinking), ("message", piece.content)):
            if text:
                yield from self._begin(kind)
                self._texts.append(text)
                yield self._about_text("delta", delta=text)
        for call in piece.tool_calls:
            yield from self._close()
            yield from self._call(call)

    def _begin(self, kind: str) -> Iterator[dict[str, Any]]:
        """Have an item of that kind open; one of another kind is closed for it."""
        if self._open is not None and self._open["type"] == kind:
            return
        yield from self._close()
        self._open = _item(kind)
        self._texts = []
        yield self._event("response.output_item.added", output_index=len(self._output), item=self._open)
        yield self._about_part("added", "")

    def _close(self) -> Iterator[dict[str, Any]]:
        if self._open is None:
            return
        text = "".join(self._texts)
        yield self._about_text("done", text=text)
        yield self._about_part("done", text)
        item = _filled(self._open, text)
        self._open = None
        yield self._event("response.output_item.done", output_index=len(self._output), item=item)
        self._output.append(item)

    def _call(self, call: ToolCall) -> Iterator[dict[str, Any]]:
        item = _call_item(call)
        where = {"output_index": len(self._output), "item_id": item["id"]}
        begun = item | {"arguments": "", "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=where["output_index"], item=begun)
        yield self._event("response.function_call_arguments.delta", **where, delta=item["arguments"])
        yield self._event(
            "response.function_call_arguments.done", **where, name=item["name"], arguments=item["arguments"]
        )
        yield self._event("response.output_item.done", output_index=where["output_index"], item=item)
        self._output.append(item)

    def _about_text(self, what: str, **more: Any) -> dict[str, Any]:
        kind = "response.output_text" if self._is_message() else "response.reasoning_summary_text"
        logprobs: dict[str, Any] = {"logprobs": []} if self._is_message() else {}
        return self._event(f"{kind}.{what}", **self._place(), **more, **logprobs)

    def _about_part(self, what: str, text: str) -> dict[str, Any]:
        kind = "response.content_part" if self._is_message() else "response.reasoning_summary_part"
        return self._event(f"{kind}.{what}", **self._place(), part=_part(self._is_message(), text))

    def _is_message(self) -> bool:
        return self._open is not None and self._open["type"] == "message"

    def _place(self) -> dict[str, Any]:
        assert self._open is not None
        index = "content_index" if self._is_message() else "summary_index"
        return {"item_id": self._open["id"], "output_index": len(self._output), index: 0}

    def _ended(self, reason: str, usage: Usage) -> dict[str, Any]:
        cut = reason == "length"
        return {
            **self._head,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": self._output,
            "usage": _usage(usage),
            **extras(usage),
        }

    def _event(self, kind: str, **more: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **more}


def _head(asked: TextRequest, said: Mapping[str, Any]) -> dict[str, Any]:
    options = asked.options
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "model": asked.model,
        "error": None,
        "incomplete_details": None,
        "instructions": said.get("instructions"),
        "max_output_tokens": said.get("max_output_tokens"),
        "metadata": said.get("metadata") or {},
        "parallel_tool_calls": asked.parallel_tool_calls,
        "previous_response_id": None,
        "reasoning": said.get("reasoning") or {"effort": None, "summary": None},
        "store": False,
        "temperature": options.get("temperature"),
        "text": said.get("text") or {"format": {"type": "text"}},
        "tool_choice": said.get("tool_choice") or "auto",
        "tools": said.get("tools") or [],
        "top_p": options.get("top_p"),
        "truncation": "auto" if asked.truncate else "disabled",
        "usage": None,
    }


def _item(kind: str) -> dict[str, Any]:
    """A message or a thought that has just begun."""
    if kind == "message":
        return {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": kind,
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
    return {"id": f"rs_{uuid.uuid4().hex}", "type": kind, "summary": []}


def _filled(item: Mapping[str, Any], text: str) -> dict[str, Any]:
    if item["type"] == "message":
        return {**item, "status": "completed", "content": [_part(True, text)]}
    return {**item, "summary": [_part(False, text)]}


def _part(is_message: bool, text: str) -> dict[str, Any]:
    if is_message:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "summary_text", "text": text}


def _call_item(call: ToolCall) -> dict[str, Any]:
    return {
        "id": f"fc_{uuid.uuid4().hex}",
        "type": "function_call",
        "status": "completed",
        "call_id": call.id or f"call_{uuid.uuid4().hex[:24]}",
        "name": call.name,
        "arguments": arguments_text(call),
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.answer_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.answer_tokens,
    }
