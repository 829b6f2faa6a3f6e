"""``/v1/chat/completions`` and ``/v1/completions``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bident.text.doors import openai_requests
from bident.text.doors.bodies import Bodies
from bident.text.doors.collected import collect
from bident.text.doors.endpoint import route
from bident.text.doors.fields import Fields
from bident.text.doors.framing import DONE, SSE, begun, event, streamed, until_gone
from bident.text.doors.openai_answers import ChatWriter, CompletionWriter
from bident.text.doors.status import OPENAI, json_answer
from bident.text.engine import TextEngine
from bident.wire.text import TextEvent, TextRequest


class OpenaiGeneration:
    """The endpoints that have a model go on with a conversation or a text."""

    def __init__(self, engine: TextEngine, bodies: Bodies) -> None:
        self._engine = engine
        self._bodies = bodies

    def routes(self) -> list[Route]:
        return [
            route("/v1/chat/completions", ("POST",), self.chat, OPENAI),
            route("/v1/completions", ("POST",), self.complete, OPENAI),
        ]

    async def chat(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            asked = openai_requests.chat_request(fields)
            stream, with_usage = _streaming(fields)
            fields.log_strays("/v1/chat/completions")
        return await self._answer(request, asked, ChatWriter(asked.model, with_usage=with_usage), stream)

    async def complete(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            asked = openai_requests.completion_request(fields)
            echo = asked.prompt if fields.flag("echo") and isinstance(asked.prompt, str) else ""
            stream, with_usage = _streaming(fields)
            fields.log_strays("/v1/completions")
        writer = CompletionWriter(asked.model, echo=echo, with_usage=with_usage)
        return await self._answer(request, asked, writer, stream)

    async def _answer(
        self, request: Request, asked: TextRequest, writer: ChatWriter | CompletionWriter, stream: bool
    ) -> Response:
        events = self._engine.answer(asked)
        if not stream:
            return json_answer(writer.whole(await until_gone(request, collect(events))))
        return streamed(_chunks(writer, await begun(request, events)), SSE, OPENAI, event)


async def _chunks(
    writer: ChatWriter | CompletionWriter, events: AsyncGenerator[TextEvent, None]
) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(events):
        async for chunk in writer.chunks(events):
            yield event(chunk)
    yield DONE


def _streaming(fields: Fields) -> tuple[bool, bool]:
    """Whether the answer comes in chunks, and whether one of them tells the usage."""
    choices = fields.object("stream_options") or Fields({})
    choices.ignore("include_obfuscation")
    return fields.flag("stream"), choices.flag("include_usage")
