"""A server that answers from a script, for tests of what is made of requests and answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bident.errors import ServeError
from bident.text.answering.answer import Answer
from bident.text.answering.asked import Server
from bident.text.answering.composing import Composer
from bident.text.gguf import GgufFacts
from bident.text.model import TextModel
from bident.text.names import ModelName
from bident.wire.text import TextEnd, TextEvent, TextPiece, TextRequest


class ScriptedServer:
    """Streams what ``scripts`` say, one for each call; a token is a word, and a prompt is its messages' contents."""

    def __init__(self, *scripts: Sequence[Mapping[str, Any] | ServeError]) -> None:
        self.scripts = list(scripts)
        self.streamed: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        self.open = 0

    async def stream(self, path: str, payload: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        self.streamed.append((path, dict(payload)))
        self.open += 1
        try:
            for item in self.scripts.pop(0):
                if isinstance(item, ServeError):
                    raise item
                yield dict(item)
        finally:
            self.open -= 1

    async def ask(self, path: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((path, dict(payload)))
        if path in self.answers:
            found = self.answers[path]
            return dict(found(payload) if callable(found) else found)
        if path == "/apply-template":
            contents = [f"{message['role']}: {message['content']}" for message in payload["messages"]]
            return {"prompt": " ".join(contents)}
        if path == "/tokenize":
            return {"tokens": list(range(len(payload["content"].split())))}
        return {"content": " ".join(f"w{token}" for token in payload["tokens"])}

    def native(self, context_length: int = 4096, slots: int = 4) -> Server:
        return Server(self, True, "m:latest", context_length, slots, load_ns=5)

    def openai(self) -> Server:
        return Server(self, False, "gpt")


def delta(content: str = "", index: int = 0, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """An event of a chat."""
    return {"choices": [{"index": index, "finish_reason": finish, "delta": {"content": content, **more}}]}


def usage(prompt: int = 7, answer: int = 3, cached: int = 2) -> dict[str, Any]:
    """The event that ends a stream of llama.cpp."""
    timings = {"cache_n": cached, "prompt_n": prompt - cached, "prompt_ms": 1.5, "predicted_n": answer}
    return {"choices": [], "usage": {"prompt_tokens": prompt}, "timings": {**timings, "predicted_ms": 2.5}}


def model(**more: Any) -> TextModel:
    """A model that can chat, unless ``more`` says otherwise. ``chat_template`` is the one in its weights."""
    facts = GgufFacts(architecture="llama", **{"chat_template": more.pop("chat_template", None)})
    given: dict[str, Any] = {"capabilities": frozenset({"completion"}), **more}
    now = datetime.now(timezone.utc)
    return TextModel(ModelName.parse("m"), "0" * 64, 1, now, Path("/nowhere/m.gguf"), facts, **given)


async def answered(request: TextRequest, server: Server, of: TextModel | None = None) -> list[TextEvent]:
    """All events of the answer."""
    return [event async for event in Answer(Composer.of(request, server, of)).events()]


def text_of(events: Sequence[TextEvent], index: int = 0) -> str:
    return "".join(event.content for event in events if isinstance(event, TextPiece) and event.index == index)


def end_of(events: Sequence[TextEvent]) -> TextEnd:
    assert isinstance(events[-1], TextEnd)
    return events[-1]
