"""A real Ollama in the engine's place: requests go to it as they come, and its answers come back byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from typing import Any

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from bident.errors import Code, ServeError
from bident.text.doors.bodies import Bodies, model_of
from bident.text.doors.framing import NDJSON, SSE, event, gone, line
from bident.text.doors.guard import protocol_of
from bident.text.upstream import model_key

_TIMEOUT = {"timeout": httpx.Timeout(None, connect=10.0).as_dict()}
_PROBE_SECONDS = 2.0
_LINK_HEADERS = frozenset(
    (
        b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
        b"upgrade host expect origin"
    ).split()
)
"""Headers about one connection, not about the request; and the origin, which has been judged here."""


class Passing:
    """An application that asks the Ollama at ``url``. ``private``: headers that are not for it to see."""

    def __init__(
        self,
        url: str,
        *,
        private: frozenset[bytes] = frozenset(),
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url
        self._left_out = _LINK_HEADERS | private
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=4.0)
        self._client = httpx.AsyncClient(limits=limits, transport=transport)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = asyncio.Event()
        passing = asyncio.ensure_future(self._pass(scope, _body(receive, sent), send))
        leaving = asyncio.ensure_future(_gone_after(sent, receive))
        try:
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                passing.result()
        except asyncio.CancelledError:  # by the server, at its end: the connection is closed, and the client notices
            return
        finally:
            passing.cancel()
            leaving.cancel()
            await asyncio.gather(passing, leaving, return_exceptions=True)

    async def close(self) -> None:
        """Let its connections go."""
        await self._client.aclose()

    async def _pass(self, scope: Scope, body: AsyncIterator[bytes], send: Send) -> None:
        began: str | None = None
        try:
            response = await self._client.send(self._request(scope, body), stream=True)
            async with contextlib.aclosing(response):
                began = response.headers.get("content-type", "")
                await send({"type": "http.response.start", "status": response.status_code, "headers": _kept(response)})
                async for part in response.aiter_raw():
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except httpx.HTTPError as error:
            message = f"the Ollama at {self.url} does not answer: {error or type(error).__name__}"
            await _fail(scope, send, ServeError(Code.UNAVAILABLE, message), began)

    def _request(self, scope: Scope, body: AsyncIterator[bytes]) -> httpx.Request:
        # Not built by the client: that would add headers of its own, and compressed answers nobody asked for.
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        where = self.url + (scope["raw_path"] + query).decode("ascii")
        headers = [(name, value) for name, value in scope["headers"] if name not in self._left_out]
        has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
        content = body if has_body else None
        return httpx.Request(scope["method"], where, headers=headers, content=content, extensions=_TIMEOUT)


class Sorting:
    """Sends each request to who answers for its model: ``by_model``, or else ``app``."""

    def __init__(self, app: ASGIApp, by_model: Mapping[str, ASGIApp], bodies: Bodies) -> None:
        self._app = app
        self._by_model = by_model
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST" or not scope["path"].startswith(("/api/", "/v1/")) or "/blobs/" in scope["path"]:
            await self._app(scope, receive, send)
            return
        try:
            async with self._bodies.read_from(scope, receive) as body:
                app = self._by_model.get(model_key(model_of(body)), self._app)
                await app(scope, _again(body, receive), send)
        except ServeError as error:
            await protocol_of(scope["path"]).refusal(error)(scope, receive, send)


async def ollama_version(url: str) -> str | None:
    """The version of the real Ollama at ``url``; None where nobody answers, or somebody else."""
    try:
        async with httpx.AsyncClient(timeout=_PROBE_SECONDS, trust_env=False) as client:
            answer: Any = (await client.get(f"{url}/api/version")).json()
    except (httpx.HTTPError, ValueError):
        return None
    if not isinstance(answer, dict) or "bident" in answer or not isinstance(answer.get("version"), str):
        return None
    return str(answer["version"])


def _kept(response: httpx.Response) -> list[tuple[bytes, bytes]]:
    """The headers of an answer that are not about the connection it came over."""
    named = [(name.lower(), value) for name, value in response.headers.raw]
    return [(name, value) for name, value in named if name not in _LINK_HEADERS]


async def _body(receive: Receive, sent: asyncio.Event) -> AsyncIterator[bytes]:
    """The body as it comes; ``sent`` is set when all of it has."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise httpx.ReadError("the client went away")
        more = message.get("more_body", False)
        if part := message.get("body", b""):
            yield part
    sent.set()


async def _gone_after(sent: asyncio.Event, receive: Receive) -> None:
    await sent.wait()
    await gone(receive)


async def _fail(scope: Scope, send: Send, error: ServeError, began: str | None) -> None:
    """Tell the client; ``began`` is the content type of an answer that has begun."""
    protocol = protocol_of(scope["path"])
    if began is None:
        await protocol.refusal(error)(scope, _nothing, send)
        return
    write: Callable[[Any], bytes] | None = {NDJSON: line, SSE: event}.get(began.partition(";")[0])
    # An answer in one piece stays incomplete: its connection is closed, and the client notices.
    if write is not None:
        await send({"type": "http.response.body", "body": write(protocol.late(error)), "more_body": False})


def _again(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives a body that has been read, and then what else there is."""
    given = False

    async def receiving() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving


async def _nothing() -> MutableMapping[str, Any]:
    return {"type": "http.disconnect"}
