"""``/v1/responses``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bident.text.doors.bodies import Bodies
from bident.text.doors.collected import collect
from bident.text.doors.endpoint import route
from bident.text.doors.framing import SSE, begun, named_event, streamed, until_gone
from bident.text.doors.responses_answer import ResponseWriter
from bident.text.doors.responses_request import responses_request
from bident.text.doors.status import OPENAI, json_answer
from bident.text.engine import TextEngine
from bident.wire.text import TextEvent


class OpenaiResponses:
    """OpenAI's Responses API, without what it would have to keep between two requests."""

    def __init__(self, engine: TextEngine, bodies: Bodies) -> None:
        self._engine = engine
        self._bodies = bodies

    def routes(self) -> list[Route]:
        return [route("/v1/responses", ("POST",), self.create, OPENAI)]

    async def create(self, request: Request) -> Response:
        async with self._bodies.object(request) as fields:
            asked = responses_request(fields)
            stream = fields.flag("stream")
            fields.log_strays("/v1/responses")
            writer = ResponseWriter(asked, fields.values)
        events = self._engine.answer(asked)
        if not stream:
            return json_answer(writer.whole(await until_gone(request, collect(events))))
        return streamed(_events(writer, await begun(request, events)), SSE, OPENAI, _failure)


async def _events(writer: ResponseWriter, events: AsyncGenerator[TextEvent, None]) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(events):
        async for each in writer.events(events):
            yield named_event(each)


def _failure(late: Mapping[str, Any]) -> bytes:
    """An error after the first event, as these streams have it."""
    error = late["error"]
    return named_event({"type": "error", "code": error["type"], "message": error["message"], "param": None})
