"""The events of an answer put together, for clients that want it in one piece."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from bident.wire.text import TextEvent, TextPiece, TokenChance, ToolCall, Usage


@dataclass
class Answer:
    """One of the answers to a request."""

    content: str = ""
    thinking: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    chances: list[TokenChance] = field(default_factory=list)
    reason: str = "stop"


@dataclass
class Collected:
    """All answers to a request, by their numbers."""

    answers: dict[int, Answer] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    context: tuple[int, ...] = ()

    @property
    def first(self) -> Answer:
        return self.answers.get(0) or Answer()


async def collect(events: AsyncIterator[TextEvent]) -> Collected:
    """Everything that ``events`` say. Raises what they raise."""
    collected = Collected()
    texts: dict[int, list[str]] = {}
    thoughts: dict[int, list[str]] = {}
    async for event in events:
        answer = collected.answers.setdefault(event.index, Answer())
        if isinstance(event, TextPiece):
            texts.setdefault(event.index, []).append(event.content)
            thoughts.setdefault(event.index, []).append(event.thinking)
            answer.tool_calls += event.tool_calls
            answer.chances += event.chances
            continue
        answer.reason = event.reason
        if event.usage is not None:
            collected.usage = event.usage
            collected.context = tuple(event.context)
    for index, answer in collected.answers.items():
        answer.content = "".join(texts.get(index, ()))
        answer.thinking = "".join(thoughts.get(index, ()))
    return collected
