"""uvicorn as the text server runs it: on a socket that is bound, over TLS where that is wanted, deaf to signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import orjson
import uvicorn
from starlette.types import ASGIApp

from bident.text.doors.connection import Connection
from bident.text.doors.status import OLLAMA
from bident.tls.certificate import RENEWAL_SECONDS, Certificate
from bident.tls.listener import TlsListener

_KEEP_ALIVE_SECONDS = 75
_HANDSHAKE_SECONDS = 30.0
_BACKLOG = 2048
_MOST_HANDSHAKES = 2048
_PLAIN = orjson.dumps(OLLAMA.shape(400, "plain HTTP was sent to an HTTPS port: use https:// instead of http://"))
_PLAIN_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=utf-8\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(_PLAIN), _PLAIN)
)


class TextListener(uvicorn.Server):
    """Serves ``app``; ``certificate`` where it speaks TLS. Answers may take ``exit_seconds`` once it is to end."""

    def __init__(self, app: ASGIApp, certificate: Certificate | None, exit_seconds: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=exit_seconds,
            )
        )
        self._certificate = certificate
        self._tls_listeners: list[TlsListener] = []
        self._renewing: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._certificate is None:
            await super().startup(sockets)
            return
        self.servers = []
        for sock in sockets or ():
            self._tls_listeners.append(self._tls_listener(self._certificate))
            await self._tls_listeners[-1].start(sock, _BACKLOG)
        self._renewing = asyncio.create_task(self._renew(self._certificate))
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self._tls_listeners:
            listener.close()
        if self._renewing is not None:
            self._renewing.cancel()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves them to whoever runs it."""
        yield

    def _tls_listener(self, certificate: Certificate) -> TlsListener:
        return TlsListener(
            "text",
            certificate.context,
            self._connection,
            handshake_seconds=_HANDSHAKE_SECONDS,
            most=_MOST_HANDSHAKES,
            plain_answer=_PLAIN_ANSWER,
        )

    def _connection(self) -> asyncio.Protocol:
        state: dict[str, Any] = {}
        return Connection(config=self.config, server_state=self.server_state, app_state=state)

    async def _renew(self, certificate: Certificate) -> None:
        while True:
            await asyncio.sleep(RENEWAL_SECONDS)
            certificate.renew()
