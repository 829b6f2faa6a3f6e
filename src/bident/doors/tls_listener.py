"""Accepts TLS connections on a bound socket, and tells those that come without TLS what is wrong.

The first byte is looked at before the handshake begins: a client that speaks plain HTTP gets an answer
it understands. Clients that say nothing, or cannot be understood, cost bounded time and memory and one
line of the log a second at most, however many they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("bident.tls")

_HANDSHAKE = 0x16
"""The first byte of every TLS connection: a record of the handshake."""
_AT_ONCE = 64
"""Connections accepted in one turn of the loop."""
_SHUTDOWN_SECONDS = 2.0
"""How long a client may take to say goodbye in its turn."""
_REST_SECONDS = 1.0
"""Before the next connection is accepted where the system has no file descriptor left, and between log lines."""
_READ_BEFORE_GOODBYE = 64 * 1024


class TlsListener:
    """Connections whose handshake has succeeded are given a protocol of ``factory``."""

    def __init__(
        self,
        name: str,
        context: ssl.SSLContext,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        handshake_seconds: float,
        most: int,
        plain_answer: bytes = b"",
    ) -> None:
        """``most`` clients may be in the handshake at the same time. ``plain_answer`` is sent to who speaks no TLS."""
        self._name = name
        self._context = context
        self._factory = factory
        self._handshake_seconds = handshake_seconds
        self._most = most
        self._plain_answer = plain_answer
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        """Clients that have sent nothing yet, and what ends their time."""
        self._shaking: set[asyncio.Task[None]] = set()
        self._sock: socket.socket | None = None
        self._fallback: asyncio.Server | None = None
        self._said_at = -_REST_SECONDS
        self._unsaid = 0

    async def start(self, sock: socket.socket, backlog: int) -> None:
        """Listen on ``sock``, which is bound."""
        loop = self._loop = asyncio.get_running_loop()
        sock.setblocking(False)
        sock.listen(backlog)
        try:
            loop.add_reader(sock, self._accept)
            self._sock = sock
        except NotImplementedError:  # Windows: the handshake begins unseen, and nobody is told what is wrong
            self._fallback = await loop.create_server(
                self._factory, sock=sock, backlog=backlog, **_tls(self._context, self._handshake_seconds)
            )

    def close(self) -> None:
        """Accept no more, and cut off who has not come to the end of the handshake."""
        if self._fallback is not None:
            self._fallback.close()
        if self._sock is not None:
            self._loop.remove_reader(self._sock)
            self._sock.close()
            self._sock = None
        for client in list(self._silent):
            self._forget(client)
            client.close()
        for task in list(self._shaking):
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if self._sock is None:
                return
            try:
                client, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file descriptor is left
                logger.error("%s: cannot accept connections: %s", self._name, error.strerror or error)
                self._loop.remove_reader(self._sock)
                self._loop.call_later(_REST_SECONDS, self._resume)
                return
            if len(self._silent) + len(self._shaking) >= self._most:
                client.close()
                continue
            client.setblocking(False)
            timer = self._loop.call_later(self._handshake_seconds, self._give_up, client)
            self._silent[client] = timer
            self._loop.add_reader(client, self._first_byte, client)

    def _resume(self) -> None:
        if self._sock is not None:
            self._loop.add_reader(self._sock, self._accept)

    def _first_byte(self, client: socket.socket) -> None:
        try:
            first = client.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        peer = _peer(client)
        self._forget(client)
        if first and first[0] == _HANDSHAKE:
            task = self._loop.create_task(self._shake(client, peer))
            self._shaking.add(task)
            task.add_done_callback(self._shaking.discard)
            return
        if first:
            self._say(peer, "it speaks no TLS, as in http:// where https:// is meant")
            self._answer_plainly(client)
        client.close()

    def _answer_plainly(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            # What is left unread when a socket is closed makes the kernel take the answer back.
            client.recv(_READ_BEFORE_GOODBYE)
            client.send(self._plain_answer)
            client.shutdown(socket.SHUT_WR)

    async def _shake(self, client: socket.socket, peer: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._factory, client, **_tls(self._context, self._handshake_seconds)
            )
        except ssl.SSLError as error:
            self._say(peer, (error.reason or str(error)).replace("_", " ").lower())
        except OSError as error:
            self._say(peer, str(error) or type(error).__name__)

    def _give_up(self, client: socket.socket) -> None:
        self._forget(client)
        self._say(_peer(client), f"it sent nothing for {self._handshake_seconds:g} s")
        client.close()

    def _forget(self, client: socket.socket) -> None:
        self._silent.pop(client).cancel()
        self._loop.remove_reader(client)

    def _say(self, peer: str, reason: str) -> None:
        now = self._loop.time()
        if now - self._said_at < _REST_SECONDS:
            self._unsaid += 1
            return
        more = f" ({self._unsaid} others before it)" if self._unsaid else ""
        logger.info("%s: no TLS connection with %s: %s%s", self._name, peer, reason, more)
        self._said_at, self._unsaid = now, 0


def _tls(context: ssl.SSLContext, handshake_seconds: float) -> dict[str, Any]:
    options: dict[str, Any] = {"ssl": context, "ssl_handshake_timeout": handshake_seconds}
    if sys.version_info >= (3, 11) or sys.platform != "win32":  # asyncio's own loop learned it in 3.11, uvloop has it
        options["ssl_shutdown_timeout"] = _SHUTDOWN_SECONDS
    return options


def _peer(client: socket.socket) -> str:
    try:
        return str(client.getpeername()[0])
    except OSError:
        return "a client that has gone"
