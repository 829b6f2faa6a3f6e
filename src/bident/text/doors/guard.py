"""Who may ask: the checks that every request passes before it is looked at.

Against web pages that are not this machine's own: the ``Host`` header (a page whose name has been
pointed at a loopback address sends its own name there) and the ``Origin`` header (CORS), both by
Ollama's rules (``allowedHostsMiddleware`` and ``OLLAMA_ORIGINS``). Against strangers: API keys.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Protocol as Interface

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bident.text.doors.status import ANTHROPIC, OLLAMA, OPENAI, Protocol

_OWN_ORIGINS = r"https?://(localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(:\d{1,5})?"
_APPS = ("app://*", "file://*", "tauri://*", "vscode-webview://*", "vscode-file://*")
_PRIVATE_ENDINGS = (".localhost", ".local", ".internal")
_METHODS = "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS"
_PREFLIGHT_SECONDS = "43200"
_FREE_PATHS = ("/", "/api/version")
"""What tells only that the server is there."""


class Keys(Interface):
    """What knows the API keys."""

    def allows(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether ``headers`` (lower-case names) carry a key."""


class Guard:
    """Stands before ``app`` and lets through what may pass. ``loopback``: only this machine reaches the server."""

    def __init__(self, app: ASGIApp, *, origins: Sequence[str], loopback: bool, keys: Keys | None) -> None:
        self._app = app
        self._origins = re.compile("|".join((_OWN_ORIGINS, *map(_pattern, (*_APPS, *origins)))), re.IGNORECASE)
        self._loopback = loopback
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and not _is_same(origin, host):
            if not self._origins.fullmatch(origin):
                await _refuse(scope, receive, send, 403, _origin_refusal(origin))
                return
            send = _with_origin(send, origin)
        if self._loopback and not _is_own_host(host):
            await _refuse(scope, receive, send, 403, _host_refusal(host))
            return
        if scope["method"] == "OPTIONS":
            await _preflight(headers)(scope, receive, send)
            return
        if self._keys is not None and scope["path"] not in _FREE_PATHS and not self._keys.allows(headers):
            await _refuse(scope, receive, send, 401, "unauthorized: send Authorization: Bearer KEY, or X-Api-Key: KEY")
            return
        await self._app(scope, receive, send)


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, message: str) -> None:
    await protocol_of(scope["path"]).answer(status, message)(scope, receive, send)


def protocol_of(path: str) -> Protocol:
    """Whose errors a path has."""
    if path.startswith("/v1/messages"):
        return ANTHROPIC
    return OLLAMA if path.startswith("/api/") or path == "/" else OPENAI


def _preflight(headers: Mapping[bytes, bytes]) -> Response:
    """What a browser asks before it lets a page ask."""
    allowed = {"access-control-allow-methods": _METHODS, "access-control-max-age": _PREFLIGHT_SECONDS}
    if asked := headers.get(b"access-control-request-headers", b"").decode("latin-1"):
        allowed["access-control-allow-headers"] = asked
    return Response(status_code=204, headers=allowed if b"origin" in headers else None)


def _with_origin(send: Send, origin: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers.add_vary_header("Origin")
        await send(message)

    return sending


def _pattern(origin: str) -> str:
    # Only * is special in an origin: [::1] is an address, no set of characters.
    return ".*".join(re.escape(part) for part in re.split(r"\*+", origin))


def _is_same(origin: str, host: str) -> bool:
    return bool(host) and origin in (f"http://{host}", f"https://{host}")


def _is_own_host(host: str) -> bool:
    """Whether a Host header can be meant for this machine: not a name that somebody else gives addresses to."""
    name = _without_port(host).lower()
    try:
        address = ipaddress.ip_address(name.strip("[]").partition("%")[0])
    except ValueError:
        return name in ("", "localhost", socket.gethostname().lower()) or name.endswith(_PRIVATE_ENDINGS)
    return address.is_loopback or address.is_private or address.is_unspecified


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host if host.count(":") > 1 else host.partition(":")[0]


def _host_refusal(host: str) -> str:
    return (
        f"forbidden: the Host header {host[:80]!r} is no name of this machine; use localhost, or --host another address"
    )


def _origin_refusal(origin: str) -> str:
    return f"forbidden: web pages of {origin[:80]!r} may not use this server; --origins={origin[:80]} lets them"
