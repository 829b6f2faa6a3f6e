"""One request's answer: asks the server, as often as it takes, and gives the events as they come."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import replace

from bident.errors import Code, ServeError
from bident.text.answering.composing import CHAT, Composed, Composer, context_after
from bident.text.answering.reading import AnswerReader
from bident.wire.text import TextEnd, TextEvent, TextPiece, Usage

_log = logging.getLogger(__name__)


class Answer:
    """The answers to one request; ``n`` of them are made together, as many at once as the server has slots."""

    def __init__(self, composer: Composer) -> None:
        self._composer = composer
        self._usage = Usage()
        self._text: list[str] = []

    async def events(self) -> AsyncGenerator[TextEvent, None]:
        """Pieces as they come, and the ends, the last of which says what all took. Raises ServeError."""
        request, server = self._composer.request, self._composer.server
        composed = await self._composer.compose()
        ends: list[TextEnd] = []
        at_once = max(1, server.slots) if server.is_native else request.count
        for first in range(0, request.count, at_once):
            count = min(at_once, request.count - first)
            async with contextlib.aclosing(self._round(composed, first, count)) as events:
                async for event in events:
                    if isinstance(event, TextEnd):
                        ends.append(event)
                    else:
                        self._text.append(event.content)
                        yield event
        usage = replace(
            self._usage,
            load_ns=server.load_ns,
            context_length=server.context_length,
            truncated_tokens=composed.truncated_tokens,
        )
        context = await self._context(composed)
        for end in ends[:-1]:
            yield end
        yield replace(ends[-1], usage=usage, context=context)

    async def _round(self, composed: Composed, first: int, count: int) -> AsyncGenerator[TextEvent, None]:
        """``count`` answers, the first of which has the number ``first``."""
        reader = AnswerReader(composed.reading, first)
        try:
            async with contextlib.aclosing(self._pieces(composed, reader, first, count)) as pieces:
                async for piece in pieces:
                    yield piece
        except ServeError as error:
            if not self._can_read_itself(composed, reader, error):
                raise
            _log.warning("%s: its calls of tools are read from plain text: %s", self._composer.server.model, error)
            own = await self._composer.compose(own_parser=True)
            reader = AnswerReader(own.reading, first)
            async with contextlib.aclosing(self._pieces(own, reader, first, count)) as pieces:
                async for piece in pieces:
                    yield piece
        for event in reader.end():
            yield event
        self._usage = _added(self._usage, reader.usage)

    async def _pieces(
        self, composed: Composed, reader: AnswerReader, first: int, count: int
    ) -> AsyncGenerator[TextPiece, None]:
        payload = dict(composed.payload)
        if count > 1:
            payload["n"] = count
        if first and payload.get("seed", -1) >= 0:
            payload["seed"] += first
        async with contextlib.aclosing(self._composer.server.asked.stream(composed.path, payload)) as documents:
            async for document in documents:
                for piece in reader.feed(document):
                    yield piece

    def _can_read_itself(self, composed: Composed, reader: AnswerReader, error: ServeError) -> bool:
        """Whether to try again with our own reading of calls.

        llama.cpp fails, as if that were its own fault, when a model writes a call that its parser cannot read.
        """
        is_parsed_there = composed.path == CHAT and self._composer.server.is_native and self._composer.tools
        return bool(is_parsed_there) and error.code is Code.INTERNAL and not reader.began

    async def _context(self, composed: Composed) -> list[int]:
        request = self._composer.request
        is_prompt = isinstance(request.prompt, str) and not request.raw and not request.suffix and request.count == 1
        if not is_prompt or request.images or not self._composer.server.is_native:
            return []
        return await context_after(self._composer, composed, "".join(self._text))


def _added(before: Usage, more: Usage) -> Usage:
    """Two rounds together; their prompt is the same."""
    return replace(
        more,
        prompt_tokens=max(before.prompt_tokens, more.prompt_tokens),
        prompt_ns=before.prompt_ns + more.prompt_ns,
        answer_tokens=before.answer_tokens + more.answer_tokens,
        answer_ns=before.answer_ns + more.answer_ns,
    )
