"""The engine's answers as Ollama writes them (its API reference, ``docs/api.md``)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from bident.text.doors.collected import Collected
from bident.text.doors.moments import utc_nanoseconds
from bident.wire.text import Embeddings, TextEnd, TextEvent, TokenChance, ToolCall, Usage


class Writer:
    """Writes the answer to one request of ``/api/chat`` (``chat``) or ``/api/generate``.

    ``model`` is the name as it was asked for; ``started`` the ``perf_counter_ns`` of its arrival.
    """

    def __init__(self, model: str, *, chat: bool, started: int) -> None:
        self._model = model
        self._chat = chat
        self._started = started

    async def parts(self, events: AsyncIterator[TextEvent]) -> AsyncIterator[dict[str, Any]]:
        """One object for each event; the last has ``done``."""
        async for event in events:
            if isinstance(event, TextEnd):
                usage = event.usage or Usage()
                yield self._head() | self._said() | self._end(event.reason, usage, event.context)
                continue
            part = self._head() | self._said(event.content, event.thinking, event.tool_calls) | {"done": False}
            if event.chances:
                part["logprobs"] = [_chance(each) for each in event.chances]
            yield part

    def whole(self, collected: Collected) -> dict[str, Any]:
        """The answer in one object."""
        answer = collected.first
        said = self._said(answer.content, answer.thinking, answer.tool_calls)
        whole = self._head() | said | self._end(answer.reason, collected.usage, collected.context)
        if answer.chances:
            whole["logprobs"] = [_chance(each) for each in answer.chances]
        return whole

    def loaded(self, reason: str) -> dict[str, Any]:
        """The answer to a request that only loads or unloads the model."""
        return self._head() | self._said() | {"done": True, "done_reason": reason}

    def _head(self) -> dict[str, Any]:
        return {"model": self._model, "created_at": utc_nanoseconds(time.time_ns())}

    def _said(self, content: str = "", thinking: str = "", calls: Sequence[ToolCall] = ()) -> dict[str, Any]:
        said: dict[str, Any] = {"role": "assistant", "content": content} if self._chat else {"response": content}
        if thinking:
            said["thinking"] = thinking
        if calls:
            said["tool_calls"] = [_call(index, call) for index, call in enumerate(calls)]
        return {"message": said} if self._chat else said

    def _end(self, reason: str, usage: Usage, context: Sequence[int]) -> dict[str, Any]:
        # To Ollama's clients calls of tools are an ordinary end.
        end: dict[str, Any] = {"done": True, "done_reason": "stop" if reason == "tool_calls" else reason}
        if context and not self._chat:
            end["context"] = [*context]
        end |= {
            "total_duration": time.perf_counter_ns() - self._started,
            "load_duration": usage.load_ns,
            "prompt_eval_count": usage.prompt_tokens,
            "prompt_eval_duration": usage.prompt_ns,
            "eval_count": usage.answer_tokens,
            "eval_duration": usage.answer_ns,
        }
        return end | extras(usage)


def extras(usage: Usage) -> dict[str, Any]:
    """What Bident adds to an answer of either protocol: how long it might have been, what did not fit, and
    whether it ends because nothing more does.
    """
    added: dict[str, Any] = {}
    if usage.context_length:
        added["context_length"] = usage.context_length
    if usage.truncated_tokens:
        added |= {"truncated": True, "truncated_tokens": usage.truncated_tokens}
    if usage.is_full:
        added["context_full"] = True
    return added


def embed_answer(model: str, embeddings: Embeddings, started: int) -> dict[str, Any]:
    """The answer of ``/api/embed``."""
    usage = embeddings.usage
    return {
        "model": model,
        "embeddings": [[*vector] for vector in embeddings.vectors],
        "total_duration": time.perf_counter_ns() - started,
        "load_duration": usage.load_ns,
        "prompt_eval_count": usage.prompt_tokens,
        **extras(usage),
    }


def _call(index: int, call: ToolCall) -> dict[str, Any]:
    function = {"index": index, "name": call.name, "arguments": dict(call.arguments)}
    return {"id": call.id, "function": function} if call.id else {"function": function}


def _chance(chance: TokenChance) -> dict[str, Any]:
    shown: dict[str, Any] = {"token": chance.token, "logprob": chance.logprob, "bytes": [*chance.bytes]}
    if chance.top:
        shown["top_logprobs"] = [_chance(each) for each in chance.top]
    return shown
