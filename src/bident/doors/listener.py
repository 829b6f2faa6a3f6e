"""What every door's listener does: its connections, its sweep for stalled clients, its tasks, its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import ClassVar, Generic, Protocol, TypeVar

from bident.engine import memory
from bident.engine.clients import Clients
from bident.tls.listener import TlsListener

logger = logging.getLogger("bident.doors")

_SWEEP_SECONDS = 1.0
_SWEEP_SLICE = 500
_TRIM_SECONDS = 5.0
"""Between two returns of memory to the system."""
_BACKLOG = 4096
_HANDSHAKE_SECONDS = 60.0
"""For a TLS handshake, where clients may otherwise take as long as they like."""
_OWN_FILES = 512
"""Open files that are not connections: models, libraries, logs, pipes."""


class Connection(Protocol):
    """A client, as its listener sees it."""

    @property
    def owes_answer(self) -> bool:
        """Whether the client waits for an answer, or for the rest of one."""
        ...

    def check_progress(self, now: float) -> None:
        """Called by the sweep: end what has stalled for too long."""
        ...

    def abort(self) -> None:
        """Cut the connection."""
        ...


AnyConnection = TypeVar("AnyConnection", bound=Connection)


class Listener(ABC, Generic[AnyConnection]):
    """Accepts connections on one address and watches over them."""

    plain_answer: ClassVar[bytes] = b""
    """What a client gets that speaks no TLS where it has to."""
    limit_hint: ClassVar[str] = ""
    """What the log adds where connections are refused: the setting that allows more."""

    def __init__(self, name: str, clients: Clients | None, *, connections: int, read_seconds: float) -> None:
        """``name`` is how the log calls this service; ``clients`` is kept up to date with who is connected.

        Up to ``connections`` clients may be connected (0 is no limit); each has ``read_seconds`` for a
        TLS handshake (0 is the usual time).
        """
        self.name = name
        self._clients = clients or Clients()
        self._most = connections
        self._handshake_seconds = read_seconds or _HANDSHAKE_SECONDS
        self.now = 0.0
        """Seconds that clients have had, refreshed by the sweep: good enough for timeouts, free to read."""
        self._swept_at = 0.0
        self._connections: dict[AnyConnection, None] = {}
        self._refused = 0
        self._is_trim_due = False
        self._trimmed_at = -_TRIM_SECONDS
        self._tasks: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | TlsListener | None = None
        self._sweeper: asyncio.Handle | None = None

    @abstractmethod
    def make_connection(self) -> asyncio.Protocol:
        """The protocol for a client that comes; it calls ``connected`` and ``disconnected``."""

    def before_sweep(self) -> None:
        """Called once a second, before the connections are looked at."""

    async def start(self, sock: socket.socket, context: ssl.SSLContext | None = None) -> None:
        """Serve on ``sock``, which is bound; over TLS with a ``context``."""
        allow_open_files((self._most or 1 << 20) + _OWN_FILES)
        loop = self._loop = asyncio.get_running_loop()
        self._swept_at = loop.time()
        if context is None:
            self._server = await loop.create_server(self.make_connection, sock=sock, backlog=_BACKLOG)
        else:
            self._server = TlsListener(
                self.name,
                context,
                self.make_connection,
                handshake_seconds=self._handshake_seconds,
                most=self._most or _BACKLOG,
                plain_answer=self.plain_answer,
            )
            await self._server.start(sock, _BACKLOG)
        self._sweeper = loop.call_later(_SWEEP_SECONDS, self._sweep)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` in the next turn of the loop."""
        assert self._loop is not None
        self._loop.call_soon(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call ``callback`` after some time."""
        assert self._loop is not None
        return self._loop.call_later(seconds, callback)

    @property
    def connection_count(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def connected(self, connection: AnyConnection) -> None:
        """A client came; one too many is cut off."""
        self._connections[connection] = None
        self._clients.count += 1
        if 0 < self._most < len(self._connections):
            self._refused += 1
            connection.abort()

    def disconnected(self, connection: AnyConnection) -> None:
        """A client went."""
        if connection in self._connections:
            del self._connections[connection]
            self._clients.count -= 1

    def run_task(self, work: Awaitable[None]) -> None:
        """Run ``work``, which raises nothing, as a task."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def owes_answers(self) -> bool:
        """Whether a client still waits for an answer, or for the rest of one."""
        return any(connection.owes_answer for connection in self._connections)

    def trim_after(self, request: object) -> None:
        """Give memory back to the system some time after ``request``, which is very large, has gone."""
        weakref.finalize(request, self.trim_soon).atexit = False

    def trim_soon(self) -> None:
        """Give memory back to the system: much has just been let go."""
        self._is_trim_due = True

    async def stop(self) -> None:
        """Stop listening and cut what is still connected."""
        if self._server is not None:
            self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._connections):
            connection.abort()
        for task in list(self._tasks):
            task.cancel()
        # One more turn of the loop, so that the aborted transports are really closed.
        await asyncio.sleep(0)

    def _trim(self) -> None:
        assert self._loop is not None
        if self._is_trim_due and self.now - self._trimmed_at >= _TRIM_SECONDS:
            self._is_trim_due = False
            self._trimmed_at = self.now
            self._loop.run_in_executor(None, memory.trim)

    def _sweep(self) -> None:
        assert self._loop is not None
        time = self._loop.time()
        # Time in which the loop itself stood still is not held against the clients.
        self.now += min(time - self._swept_at, 2 * _SWEEP_SECONDS)
        self._swept_at = time
        if self._refused:
            logger.warning(
                "%s: %d connections refused, %d are open%s",
                self.name,
                self._refused,
                len(self._connections),
                self.limit_hint,
            )
            self._refused = 0
        self._trim()
        self.before_sweep()
        self._sweep_slice(list(self._connections), 0)

    def _sweep_slice(self, connections: list[AnyConnection], start: int) -> None:
        """Look at some connections at a time: thousands of them must not hold up the others' requests."""
        assert self._loop is not None
        stop = start + _SWEEP_SLICE
        for connection in connections[start:stop]:
            if connection in self._connections:
                try:
                    connection.check_progress(self.now)
                except Exception:
                    logger.exception("%s: a connection could not be checked", self.name)
        if stop < len(connections):
            self._sweeper = self._loop.call_soon(self._sweep_slice, connections, stop)
        else:
            self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)


def allow_open_files(wanted: int) -> None:
    """Let this process open as many files as the system allows it, up to ``wanted``: each connection is one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
