"""``/v1/messages`` and ``/v1/messages/count_tokens``, as Anthropic's clients ask them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bident.text.doors.anthropic_answers import MessageWriter
from bident.text.doors.anthropic_requests import messages_request
from bident.text.doors.bodies import Bodies
from bident.text.doors.collected import collect
from bident.text.doors.endpoint import route
from bident.text.doors.framing import SSE, begun, named_event, streamed, until_gone
from bident.text.doors.status import ANTHROPIC, json_answer
from bident.text.engine import TextEngine
from bident.wire.text import TextEvent


class AnthropicMessages:
    """Anthropic's protocol, for the engine's models."""

    def __init__(self, engine: TextEngine, bodies: Bodies) -> None:
        self._engine = engine
        self._bodies = bodies

    def routes(self) -> list[Route]:
        return [
            route("/v1/messages", ("POST",), self.create, ANTHROPIC),
            route("/v1/messages/count_tokens", ("POST",), self.count, ANTHROPIC),
        ]

    async def create(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            asked = messages_request(fields)
            stream = fields.flag("stream")
            fields.log_strays("/v1/messages")
        writer = MessageWriter(asked.model)
        events = self._engine.answer(asked)
        if not stream:
            return json_answer(writer.whole(await until_gone(request, collect(events))))
        return streamed(_events(writer, await begun(request, events)), SSE, ANTHROPIC, named_event)

    async def count(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            asked = messages_request(fields, counting=True)
            fields.log_strays("/v1/messages/count_tokens")
        return json_answer({"input_tokens": await until_gone(request, self._engine.count_tokens(asked))})


async def _events(writer: MessageWriter, events: AsyncGenerator[TextEvent, None]) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(events):
        async for each in writer.events(events):
            yield named_event(each)
