"""The text engine with a span for each answer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from bident.text.answering.asked import Upstreams
from bident.text.engine import TextEngine
from bident.text.runner.residency import Residency
from bident.text.store.library import Library
from bident.text.tracing.spans import TextSpans
from bident.wire.text import Embeddings, EmbedRequest, TextEvent, TextRequest


class TracedEngine(TextEngine):
    """As its base; what ``spans`` want to know of each answer, they are told."""

    def __init__(self, library: Library, residency: Residency, upstreams: Upstreams, spans: TextSpans) -> None:
        super().__init__(library, residency, upstreams)
        self._spans = spans

    async def answer(self, request: TextRequest) -> AsyncGenerator[TextEvent, None]:
        operation = "text_completion" if request.messages is None else "chat"
        with self._spans.noting(operation, request.model) as notes:
            if notes is not None:
                notes.asked(request)
            async with contextlib.aclosing(super().answer(request)) as events:
                async for event in events:
                    if notes is not None:
                        notes.see(event)
                    yield event

    async def embed(self, request: EmbedRequest) -> Embeddings:
        with self._spans.noting("embeddings", request.model) as notes:
            embeddings = await super().embed(request)
            if notes is not None:
                notes.embedded(request, embeddings)
            return embeddings
