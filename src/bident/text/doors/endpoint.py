"""Endpoints: functions of a request, whose errors are written as their protocol has them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bident.text.doors.framing import stopping
from bident.text.doors.status import Protocol, as_serve_error

Endpoint = Callable[[Request], Awaitable[Response]]


def route(path: str, methods: Sequence[str], endpoint: Endpoint, protocol: Protocol) -> Route:
    """``endpoint`` at ``path``; whatever it raises becomes an error of ``protocol``."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except asyncio.CancelledError:  # by the server, at its end
            return protocol.refusal(stopping())
        except Exception as error:  # noqa: BLE001 - the last place where an answer can be made of it
            return protocol.refusal(as_serve_error(error))

    return Route(path, answer, methods=list(methods))
