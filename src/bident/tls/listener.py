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
                self._factory,
                sock=sock,
                backlog=backlog,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_seconds,
                **_shutdown_timeout(),
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
            # Not both in one, as the loop offers it: TLS must not hide how much the connection below it holds.
            plain, early = await self._loop.connect_accepted_socket(_Early, client)
            entrance = _Entrance()
            handshake = self._loop.create_task(self._encrypt(plain, entrance))
            await asyncio.sleep(0)
            # The handshake has queued its own beginning, and comes before this; the next reading comes after.
            self._loop.call_soon(early.hand_over, plain)
            tls = await handshake
            if tls is not None:
                entrance.open(self._factory(), tls, plain)
        except ssl.SSLError as error:
            self._say(peer, (error.reason or str(error)).replace("_", " ").lower())
        except (OSError, RuntimeError) as error:  # RuntimeError: the client has gone before it began
            self._say(peer, str(error) or type(error).__name__)

    async def _encrypt(self, plain: asyncio.Transport, entrance: _Entrance) -> asyncio.Transport | None:
        return await self._loop.start_tls(
            plain,
            entrance,
            self._context,
            server_side=True,
            ssl_handshake_timeout=self._handshake_seconds,
            **_shutdown_timeout(),
        )

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


class _Early(asyncio.Protocol):
    """Keeps what comes before the handshake can begin: a connection of uvloop's reads from its first moment on."""

    def __init__(self) -> None:
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data

    def hand_over(self, plain: asyncio.Transport) -> None:
        """Let the protocol that has taken this one's place have what came."""
        protocol: Any = plain.get_protocol()
        if protocol is self or plain.is_closing():
            return
        received = memoryview(self._received)
        if not hasattr(protocol, "get_buffer"):  # asyncio's own until Python 3.11
            protocol.data_received(bytes(received))
            return
        while received:
            buffer = memoryview(protocol.get_buffer(len(received)))
            size = min(len(buffer), len(received))
            buffer[:size] = received[:size]
            received = received[size:]
            protocol.buffer_updated(size)


class _Entrance(asyncio.Protocol):
    """Keeps what a client sends with the end of the handshake for the protocol that is about to be."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._is_lost = False

    def data_received(self, data: bytes) -> None:
        self._received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True

    def open(self, protocol: asyncio.BaseProtocol, tls: asyncio.Transport, plain: asyncio.Transport) -> None:
        """Have ``protocol`` go on with the connection."""
        if self._is_lost:
            return
        tls.set_protocol(protocol)
        protocol.connection_made(_TlsTransport(tls, plain))
        if self._received:  # all at once: after the first part the protocol may want to receive no more for now
            protocol.data_received(bytes(self._received))  # type: ignore[attr-defined]


class _TlsTransport(asyncio.Transport):
    """A connection over TLS that knows how much of what was written the client has not taken.

    What TLS has encrypted it hands to the connection below at once, and counts no longer.
    """

    def __init__(self, tls: asyncio.Transport, plain: asyncio.Transport) -> None:
        super().__init__()
        self._tls, self._plain = tls, plain
        for name in _SAME:
            setattr(self, name, getattr(tls, name))

    def get_write_buffer_size(self) -> int:
        return self._tls.get_write_buffer_size() + self._plain.get_write_buffer_size()


_SAME = (
    "abort",
    "can_write_eof",
    "close",
    "get_extra_info",
    "get_protocol",
    "get_write_buffer_limits",
    "is_closing",
    "is_reading",
    "pause_reading",
    "resume_reading",
    "set_protocol",
    "set_write_buffer_limits",
    "write",
    "write_eof",
    "writelines",
)
"""What the transport over TLS does itself: called without a detour, for it is called for every answer."""


def _shutdown_timeout() -> dict[str, Any]:
    # asyncio's own loop learned it in Python 3.11; uvloop has had it for longer.
    known = sys.version_info >= (3, 11) or sys.platform != "win32"
    return {"ssl_shutdown_timeout": _SHUTDOWN_SECONDS} if known else {}


def _peer(client: socket.socket) -> str:
    try:
        return str(client.getpeername()[0])
    except OSError:
        return "a client that has gone"
