"""``/api/generate``, ``/api/chat``, ``/api/embed`` and ``/api/embeddings``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bident.text.doors import ollama_requests
from bident.text.doors.bodies import Bodies
from bident.text.doors.collected import collect
from bident.text.doors.endpoint import route
from bident.text.doors.fields import Fields
from bident.text.doors.framing import NDJSON, begun, line, streamed, until_gone
from bident.text.doors.ollama_answers import Writer, embed_answer
from bident.text.doors.status import OLLAMA, json_answer
from bident.text.engine import TextEngine
from bident.wire.text import TextEvent, TextRequest


class OllamaGeneration:
    """The endpoints that ask a model something."""

    def __init__(self, engine: TextEngine, bodies: Bodies) -> None:
        self._engine = engine
        self._bodies = bodies

    def routes(self) -> list[Route]:
        return [
            route("/api/generate", ("POST",), self.generate, OLLAMA),
            route("/api/chat", ("POST",), self.chat, OLLAMA),
            route("/api/embed", ("POST",), self.embed, OLLAMA),
            route("/api/embeddings", ("POST",), self.embeddings, OLLAMA),
        ]

    async def generate(self, request: Request) -> Response:
        started = time.perf_counter_ns()
        async with self._bodies.object(request) as fields:
            asked = ollama_requests.generate_request(fields)
            stream = _streams(fields, "/api/generate")
        writer = Writer(asked.model, chat=False, started=started)
        if not (asked.prompt or asked.suffix or asked.images):
            return await self._load(request, asked, writer)
        return await self._answer(request, asked, writer, stream)

    async def chat(self, request: Request) -> Response:
        started = time.perf_counter_ns()
        async with self._bodies.object(request) as fields:
            asked = ollama_requests.chat_request(fields)
            stream = _streams(fields, "/api/chat")
        writer = Writer(asked.model, chat=True, started=started)
        if not asked.messages:
            return await self._load(request, asked, writer)
        return await self._answer(request, asked, writer, stream)

    async def embed(self, request: Request) -> Response:
        started = time.perf_counter_ns()
        async with self._bodies.object(request) as fields:
            asked = ollama_requests.embed_request(fields)
            fields.log_strays("/api/embed")
        embeddings = await until_gone(request, self._engine.embed(asked))
        return json_answer(embed_answer(asked.model, embeddings, started))

    async def embeddings(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            asked = ollama_requests.embeddings_request(fields)
            fields.log_strays("/api/embeddings")
        embeddings = await until_gone(request, self._engine.embed(asked))
        return json_answer({"embedding": [*embeddings.vectors[0]] if embeddings.vectors else []})

    async def _load(self, request: Request, asked: TextRequest, writer: Writer) -> Response:
        """Nothing is asked: the model is loaded, or unloaded where it should stay for no time at all."""
        if asked.keep_alive == 0:
            await until_gone(request, self._engine.unload(asked.model))
            return json_answer(writer.loaded("unload"))
        await until_gone(request, self._engine.load(asked.model, asked.options, asked.keep_alive))
        return json_answer(writer.loaded("load"))

    async def _answer(self, request: Request, asked: TextRequest, writer: Writer, stream: bool) -> Response:
        events = self._engine.answer(asked)
        if not stream:
            return json_answer(writer.whole(await until_gone(request, collect(events))))
        return streamed(_lines(writer, await begun(request, events)), NDJSON, OLLAMA, line)


async def _lines(writer: Writer, events: AsyncGenerator[TextEvent, None]) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(events):
        async for part in writer.parts(events):
            yield line(part)


def _streams(fields: Fields, endpoint: str) -> bool:
    """Whether the answer comes in parts, as it does unless the client says no. All fields have been read by now."""
    stream = fields.flag("stream", True)
    fields.log_strays(endpoint)
    return stream
