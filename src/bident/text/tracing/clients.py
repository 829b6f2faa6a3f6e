"""Who sent a request, as far as traces go: noted at the door, and asked for where a span is made."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from bident.wire.trace_context import TraceContext, propagated

_LITELLM = b"litellm/"
"""How LiteLLM's user agent begins: it notes the usage of all that passes through it, and sends no trace context."""


@dataclass(frozen=True)
class Client:
    """Its span, if its request is part of a trace, and whether it notes itself how many tokens are used."""

    span: TraceContext | None = None
    counts: bool = False


_client: ContextVar[Client] = ContextVar("_client", default=Client())  # noqa: B039 - it is frozen


class Clients:
    """An application that notes the client for all that ``app`` does about a request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        span = propagated(headers)
        is_litellm = headers.get(b"user-agent", b"").lower().startswith(_LITELLM)
        before = _client.set(Client(span, counts=span is not None or is_litellm))
        try:
            await self._app(scope, receive, send)
        finally:
            _client.reset(before)


def client() -> Client:
    """Who sent the request that is under way."""
    return _client.get()
