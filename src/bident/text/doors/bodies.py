"""Bodies of requests: read within limits of size and time, and parsed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from bident.errors import Code, ServeError, TooLargeError, invalid_arg
from bident.text.doors.fields import Fields
from bident.wire.shown import shown

_SECONDS_BETWEEN_PARTS = 60.0
"""A client that sends nothing for so long has gone, whatever its connection says."""
_MOST_MENDED_BYTES = 4 << 20
"""Mending a body takes long, and nobody else is answered meanwhile: a larger one must be right."""
_BODIES_AT_ONCE = 8
"""All requests together hold at most so many bodies of the largest size."""


class Bodies:
    """Reads bodies of at most ``limit`` bytes, all at once of at most eight times that."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._budget = limit * _BODIES_AT_ONCE
        self._held = 0

    @contextlib.asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """The whole body, counted as held while in use.

        Raises TooLargeError, CANCELLED where the client goes, and UNAVAILABLE where all bodies together are too many.
        """
        held = 0
        body = bytearray()
        try:
            self._check_declared(request)
            async for part in parts(request):
                held += len(part)
                self._held += len(part)
                if held > self.limit:
                    raise self._too_large(held)
                if self._held > self._budget:
                    raise ServeError(
                        Code.UNAVAILABLE, "server busy, please try again.  too many large requests at once"
                    )
                body += part
            yield bytes(body)
        finally:
            self._held -= held

    def read_from(self, scope: Scope, receive: Receive) -> contextlib.AbstractAsyncContextManager[bytes]:
        """As :meth:`read`, where there is no request yet."""
        return self.read(Request(scope, receive))

    @contextlib.asynccontextmanager
    async def object(self, request: Request) -> AsyncIterator[Fields]:
        """The JSON object that is the body. Raises as :meth:`read`, and INVALID_ARG where it is none."""
        async with self.read(request) as body:
            yield Fields(parse_object(body))

    def _check_declared(self, request: Request) -> None:
        declared = request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and len(declared) < 20 and int(declared) > self.limit:
            raise self._too_large(int(declared))

    def _too_large(self, size: int) -> ServeError:
        return TooLargeError(
            f"request body too large: {size} bytes or more, and {self.limit} are the most (--max-body-bytes)"
        )


async def parts(request: Request) -> AsyncIterator[bytes]:
    """The body as it comes. Raises CANCELLED where the client goes or falls silent."""
    stream = request.stream()
    while True:
        try:
            part = await asyncio.wait_for(anext(stream), _SECONDS_BETWEEN_PARTS)
        except StopAsyncIteration:
            return
        except (ClientDisconnect, asyncio.TimeoutError):
            raise ServeError(Code.CANCELLED, "the body of the request did not arrive whole") from None
        if part:
            yield part


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in ``body``. Raises INVALID_ARG, for an empty body in Ollama's words."""
    if not body.strip():
        raise invalid_arg("missing request body")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        value = _with_lone_surrogates(body, error)
    if not isinstance(value, dict):
        raise invalid_arg(f"the request body must be a JSON object, not {shown(value)}")
    return value


def model_of(body: bytes) -> str:
    """The model that a body names; empty where it names none, or is no JSON object."""
    try:
        fields = parse_object(body)
    except ServeError:
        return ""
    model = fields.get("model") or fields.get("name")
    return model if isinstance(model, str) else ""


def _with_lone_surrogates(body: bytes, error: orjson.JSONDecodeError) -> Any:
    r"""What strict JSON refuses and Go reads: ``\ud83d`` alone, where a client cut a text within a character."""
    refusal = invalid_arg(f"invalid JSON in the request body: {error}")
    if len(body) > _MOST_MENDED_BYTES:
        raise refusal
    try:
        text = body.decode("utf-8", "replace")
        value = json.loads(text, parse_constant=_refuse_constant)
        return orjson.loads(
            json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        )
    except (ValueError, RecursionError):
        raise refusal from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)
