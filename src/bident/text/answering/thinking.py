"""What a model thinks before it answers, apart from the answer: ``<think>`` and ``</think>`` over pieces of text."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

_OPEN, _CLOSE = "<think>", "</think>"


def template_arguments(think: bool | str | None) -> Mapping[str, Any]:
    """What a chat template is told: whether to think at all, and how hard."""
    if think is None:
        return {}
    effort = {"reasoning_effort": think} if isinstance(think, str) else {}
    return {"enable_thinking": bool(think), **effort}


def begins_thinking(prompt: str) -> bool:
    """Whether the template has opened the thinking itself, so that the answer only closes it."""
    return prompt.rstrip().endswith(_OPEN)


class _State(Enum):
    BEFORE = "nothing but space has come"
    THINKING = "the thinking is open"
    BETWEEN = "the thinking has ended, its space has not"
    ANSWER = "the rest is answer, tags and all: a model thinks once"


class ThinkSplitter:
    """Tells thinking from answer as the pieces come. What may be the beginning of a tag waits for the next piece."""

    def __init__(self, *, inside: bool) -> None:
        self._state = _State.THINKING if inside else _State.BEFORE
        self._held = ""

    def feed(self, piece: str) -> tuple[str, str]:
        """The thinking and the answer that are certain after ``piece``."""
        text, self._held = self._held + piece, ""
        if self._state is _State.BEFORE:
            begun = text.lstrip()
            if not begun.startswith(_OPEN) and _OPEN.startswith(begun):
                self._held = text
                return "", ""
            self._state = _State.THINKING if begun.startswith(_OPEN) else _State.ANSWER
            text = begun.removeprefix(_OPEN) if self._state is _State.THINKING else text
        thinking = ""
        if self._state is _State.THINKING:
            thinking, closed, text = text.partition(_CLOSE)
            if not closed:
                certain = certain_length(thinking, _CLOSE)
                self._held = thinking[certain:]
                return thinking[:certain], ""
            self._state = _State.BETWEEN
        if self._state is _State.BETWEEN:
            text = text.lstrip()
            self._state = _State.ANSWER if text else self._state
        return thinking, text

    def end(self) -> tuple[str, str]:
        """What was waiting when no more comes."""
        held, self._held = self._held, ""
        return (held, "") if self._state is _State.THINKING else ("", held)


def certain_length(text: str, tag: str) -> int:
    """How much of ``text`` cannot be the beginning of a ``tag`` that its end may have begun."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return len(text) - length
    return len(text)
