"""The engine with a model that another server has: nothing is looked up or loaded here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast

from bident.text.answering.asked import Server
from bident.text.engine import TextEngine
from bident.text.runner.residency import Residency
from bident.text.store.library import Library
from bident.wire.text import EmbedRequest, Message, RerankRequest, TextEnd, TextEvent, TextPiece, TextRequest


class OtherServer:
    """Answers everything with the paths it was asked for."""

    def find(self, model: str) -> Server | None:
        return Server(self, False, "theirs") if model == "far" else None

    async def stream(self, path: str, payload: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        yield {"choices": [{"index": 0, "delta": {"content": f"{path} {payload['model']}"}}]}

    async def ask(self, path: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        if path == "/v1/embeddings":
            return {"data": [{"index": 0, "embedding": [0.0, 2.0]}]}
        return {"results": [{"index": 0, "relevance_score": 1.0}]}


def test_another_servers_model_is_never_looked_up_here() -> None:
    nothing: Any = None
    engine = TextEngine(cast("Library", nothing), cast("Residency", nothing), OtherServer())

    async def ask() -> list[TextEvent]:
        assert await engine.load("far") == 0
        await engine.unload("far")
        assert (await engine.embed(EmbedRequest(model="far", inputs=["a"]))).vectors == [[0.0, 1.0]]
        assert [i.index for i in await engine.rerank(RerankRequest(model="far", query="q", documents=["d"]))] == [0]
        request = TextRequest(model="far", messages=[Message("user", "hi")])
        return [event async for event in engine.answer(request)]

    piece, end = asyncio.run(ask())
    assert isinstance(piece, TextPiece)
    assert piece.content == "/v1/chat/completions theirs"
    assert isinstance(end, TextEnd)
    assert end.reason == "stop"


def test_nothing_to_embed_is_no_vectors_from_nobody() -> None:
    nothing: Any = None
    engine = TextEngine(nothing, nothing)

    assert list(asyncio.run(engine.embed(EmbedRequest(model="any", inputs=[]))).vectors) == []
