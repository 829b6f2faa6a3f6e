"""The text server's application: every endpoint of the three protocols, and what answers the rest."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from bident.text.doors.anthropic_messages import AnthropicMessages
from bident.text.doors.bodies import Bodies
from bident.text.doors.ollama_generation import OllamaGeneration
from bident.text.doors.ollama_library import OllamaLibrary
from bident.text.doors.openai_generation import OpenaiGeneration
from bident.text.doors.openai_others import OpenaiOthers
from bident.text.doors.openai_responses import OpenaiResponses
from bident.text.doors.status import OLLAMA
from bident.text.engine import TextEngine


def application(engine: TextEngine, bodies: Bodies) -> ASGIApp:
    """All that the text server answers, for ``engine``; whoever can reach it may use it."""
    doors = (
        OllamaGeneration(engine, bodies),
        OllamaLibrary(engine, bodies),
        OpenaiGeneration(engine, bodies),
        OpenaiOthers(engine, bodies),
        OpenaiResponses(engine, bodies),
        AnthropicMessages(engine, bodies),
    )
    routes = [each for door in doors for each in door.routes()]
    return Starlette(routes=routes, exception_handlers={404: _unknown, 405: _wrong_verb})


async def _unknown(request: Request, _: Exception) -> Response:
    """As gin answers; a base URL that ends in /v1 before Ollama's paths is common enough to be told."""
    path = request.url.path
    if path.startswith("/v1/api/"):
        meant = path.removeprefix("/v1")[:80]
        hint = f"404 page not found: did you mean {meant}? The base URL of Ollama's API does not end in /v1"
        return OLLAMA.answer(404, hint)
    return PlainTextResponse("404 page not found", 404)


async def _wrong_verb(_: Request, error: Exception) -> Response:
    headers = error.headers if isinstance(error, HTTPException) else None
    return PlainTextResponse("405 method not allowed", 405, headers)
