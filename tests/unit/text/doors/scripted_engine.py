"""A text engine whose answers are written down beforehand, and the doors before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from starlette.types import ASGIApp

from bident.errors import Code, ServeError
from bident.text.answering.asked import RemoteModel
from bident.text.doors.bodies import Bodies
from bident.text.doors.routes import application
from bident.text.gguf import GgufFacts
from bident.text.model import Details, TextModel
from bident.text.names import ModelName
from bident.text.runner.residency import Running
from bident.text.store.card import ModelCard
from bident.wire.text import (
    Embeddings,
    EmbedRequest,
    Ranked,
    RerankRequest,
    TextEnd,
    TextEvent,
    TextPiece,
    TextRequest,
    TokenChance,
    ToolCall,
    Usage,
)

CALL = ToolCall("call_1", "weather", {"city": "Paris", "at": 1})
CHANCE = TokenChance("Hi", -0.5, [72, 105], (TokenChance("Ho", -1.5, [72, 111]),))
USAGE = Usage(
    prompt_tokens=7, cached_tokens=3, prompt_ns=11, answer_tokens=2, answer_ns=13, load_ns=17, context_length=4096
)
MOMENT = datetime(2026, 11, 30, 16, 3, 12, 500000, tzinfo=timezone.utc)
Script = Sequence[TextEvent | Exception]
HELLO: Script = (TextPiece(content="Hel"), TextPiece(content="lo"), TextEnd(usage=USAGE, context=(1, 2)))


def sample_model(name: str = "smol", **more: Any) -> TextModel:
    facts = GgufFacts(architecture="llama", context_length=8192, embedding_length=576)
    details = Details(family="llama", families=("llama",), parameter_size="1M", quantization_level="Q4_1")
    return TextModel(
        name=ModelName.parse(name),
        digest="d" * 64,
        size=5,
        modified_at=MOMENT,
        weights=Path("/weights"),
        facts=facts,
        details=details,
        capabilities=frozenset({"completion"}),
        **more,
    )


class ScriptedLibrary:
    """Holds ``smol``; long work reports ``statuses``."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.statuses: list[dict[str, Any] | Exception] = [{"status": "writing manifest"}, {"status": "success"}]
        self.received = b""

    async def find(self, name: str) -> TextModel:
        if ModelName.parse(name).key != ModelName.parse("smol").key:
            raise ServeError(Code.NOT_FOUND, f"model '{name}' not found")
        return sample_model()

    async def models(self) -> list[TextModel]:
        return [sample_model(), sample_model("me/broken", fault="no weights")]

    async def show(self, name: str, *, verbose: bool = False) -> ModelCard:
        self.asked.append(("show", name, verbose))
        return ModelCard(
            await self.find(name), modelfile="FROM x", parameters="", template="{{ .Prompt }}", model_info={"a": 1}
        )

    async def copy(self, source: str, destination: str) -> None:
        self.asked.append(("copy", source, destination))

    async def delete(self, name: str) -> None:
        self.asked.append(("delete", name))
        await self.find(name)

    async def has_blob(self, digest: str) -> bool:
        return digest.endswith("1")

    async def put_blob(self, digest: str, chunks: AsyncIterator[bytes]) -> bool:
        if await self.has_blob(digest):
            return False
        async for chunk in chunks:
            self.received += chunk
        return True

    def create(self, creation: Any) -> AsyncIterator[dict[str, Any]]:
        self.asked.append(("create", creation))
        return self._work()

    def pull(self, source: str, name: str | None = None, *, insecure: bool = False) -> AsyncIterator[dict[str, Any]]:
        self.asked.append(("pull", source, name, insecure))
        return self._work()

    def push(self, name: str, *, insecure: bool = False) -> AsyncIterator[dict[str, Any]]:
        self.asked.append(("push", name, insecure))
        return self._work()

    async def _work(self) -> AsyncIterator[dict[str, Any]]:
        for status in self.statuses:
            if isinstance(status, Exception):
                raise status
            yield status


class ScriptedResidency:
    def __init__(self) -> None:
        self.unloaded: list[str] = []

    def running(self) -> list[Running]:
        return [
            Running(sample_model(), 9, MOMENT, 4096, MOMENT, 1, 0),
            Running(sample_model("stays"), 9, None, 4096, MOMENT, 2, 0),
        ]

    async def unload(self, model: TextModel) -> None:
        self.unloaded.append(model.name.short)


@dataclass
class ScriptedEngine:
    """Answers every request with ``script``: events, and exceptions that are raised in their place."""

    script: Script = HELLO
    vectors: Sequence[Sequence[float]] = ((1.0, 0.5), (0.0, -2.0))
    asked: list[Any] = field(default_factory=list)
    elsewhere: Sequence[RemoteModel] = ()
    library: ScriptedLibrary = field(default_factory=ScriptedLibrary)
    residency: ScriptedResidency = field(default_factory=ScriptedResidency)
    ended: int = 0
    """Answers that have been given to the end or given up."""

    async def answer(self, request: TextRequest) -> AsyncGenerator[TextEvent, None]:
        self.asked.append(request)
        try:
            for event in self.script:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.ended += 1

    async def models(self) -> tuple[list[TextModel], Sequence[RemoteModel]]:
        return await self.library.models(), self.elsewhere

    def remote(self, model: str) -> RemoteModel | None:
        return next((each for each in self.elsewhere if each.name == model), None)

    async def embed(self, request: EmbedRequest) -> Embeddings:
        self.asked.append(request)
        return Embeddings(self.vectors[: len(request.inputs)], USAGE)

    async def rerank(self, request: RerankRequest) -> list[Ranked]:
        self.asked.append(request)
        return [Ranked(1, 0.9), Ranked(0, 0.1)]

    async def tokenize(
        self, model: str, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        self.asked.append(("tokenize", model, text, add_special))
        return [5, 6]

    async def detokenize(self, model: str, sequence: Sequence[int]) -> str:
        self.asked.append(("detokenize", model, [*sequence]))
        return "text"

    async def count_tokens(self, request: TextRequest) -> int:
        self.asked.append(request)
        return 42

    async def load(self, model: str, options: Mapping[str, Any] | None = None, keep_alive: float | None = None) -> int:
        self.asked.append(("load", model, options, keep_alive))
        return 1

    async def unload(self, model: str) -> None:
        self.asked.append(("unload", model))


class Client:
    """Asks an application as if over HTTP; what it raises is raised here."""

    def __init__(self, app: ASGIApp, base_url: str = "http://localhost:11434") -> None:
        self._app = app
        self._base_url = base_url

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url=self._base_url) as client:
                return await client.request(method, path, **more)

        return asyncio.run(ask())

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def head(self, path: str, **more: Any) -> httpx.Response:
        return self.request("HEAD", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)


def doors(engine: ScriptedEngine | None = None, *, max_body_bytes: int = 1 << 20) -> SimpleNamespace:
    """An ``engine`` and a ``client`` of the doors before it."""
    engine = engine or ScriptedEngine()
    return SimpleNamespace(engine=engine, client=Client(application(engine, Bodies(max_body_bytes))))  # type: ignore[arg-type]


async def in_parts(*parts: bytes) -> AsyncIterator[bytes]:
    """A body of no declared length."""
    for part in parts:
        yield part
