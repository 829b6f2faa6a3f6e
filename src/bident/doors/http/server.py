"""An HTTP listener: its connections, its limits, its sweep for stalled clients, its drain."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import socket
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bident.doors.http.exchange import Exchange
from bident.doors.http.protocol import HttpConnection
from bident.doors.http.routes import Resource, Routes
from bident.engine import memory
from bident.engine.clients import Clients
from bident.errors import ServeError

logger = logging.getLogger("bident.http")

_SWEEP_SECONDS = 1.0
_SWEEP_SLICE = 500
_TRIM_SECONDS = 5.0
"""Between two returns of memory to the system."""
_BACKLOG = 4096
_OWN_FILES = 512
"""Open files that are not connections: models, libraries, logs, pipes."""


@dataclass(frozen=True)
class Limits:
    """What one client may cost. Sizes in bytes, times in seconds.

    0 is no limit for ``connections``, ``read_seconds`` and ``idle_seconds``.
    """

    head_bytes: int = 64 * 1024
    json_bytes: int = 64 * 1024 * 1024
    binary_bytes: int = 2**31 - 1
    small_body: int = 1024 * 1024
    connections: int = 16384
    read_seconds: float = 30.0
    write_seconds: float = 60.0
    idle_seconds: float = 75.0
    linger_seconds: float = 2.0

    def refusal(self, size: int, limit: int) -> tuple[int, str]:
        """Status and words for a body of ``size`` bytes against ``limit``."""
        if limit == self.json_bytes:
            return 413, (
                f"request JSON of {size} bytes exceeds the maximum allowed value of {limit} bytes. "
                f"Use --http-max-input-size to increase the limit."
            )
        return 413, f"request body of {size} bytes exceeds the maximum of {limit} bytes"


class HttpServer:
    """Accepts connections on one address and hands their requests to ``routes``."""

    def __init__(self, routes: Routes, limits: Limits, name: str, clients: Clients | None = None) -> None:
        """``name`` is how the log calls this service; ``clients`` is kept up to date with who is connected."""
        self.routes = routes
        self.limits = limits
        self.name = name
        self._clients = clients or Clients()
        self.is_draining = False
        """While True, every answer is the last one on its connection."""
        self.now = 0.0
        """Seconds that clients have had, refreshed by the sweep: good enough for timeouts, free to read."""
        self._swept_at = 0.0
        self._connections: dict[HttpConnection, None] = {}
        self._refused = 0
        self._is_trim_due = False
        self._trimmed_at = -_TRIM_SECONDS
        self._tasks: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Handle | None = None

    async def start(self, sock: socket.socket) -> None:
        """Serve on ``sock``, which is bound."""
        allow_open_files((self.limits.connections or 1 << 20) + _OWN_FILES)
        loop = self._loop = asyncio.get_running_loop()
        self._swept_at = loop.time()
        self._server = await loop.create_server(lambda: HttpConnection(self), sock=sock, backlog=_BACKLOG)
        self._sweeper = loop.call_later(_SWEEP_SECONDS, self._sweep)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` in the next turn of the loop."""
        assert self._loop is not None
        self._loop.call_soon(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` after some time."""
        assert self._loop is not None
        self._loop.call_later(seconds, callback)

    @property
    def connection_count(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def connected(self, connection: HttpConnection) -> None:
        """A client came; one too many is cut off."""
        self._connections[connection] = None
        self._clients.count += 1
        if 0 < self.limits.connections < len(self._connections):
            self._refused += 1
            connection.abort()

    def disconnected(self, connection: HttpConnection) -> None:
        """A client went."""
        if connection in self._connections:
            del self._connections[connection]
            self._clients.count -= 1

    def dispatch(self, resource: Resource, exchange: Exchange) -> None:
        """Serve ``exchange``; whatever goes wrong, it gets an answer."""
        try:
            waiting = resource.serve(exchange)
        except ServeError as error:
            exchange.respond_failure(error)
        except Exception:  # noqa: BLE001 - nothing a request causes may cost another one its answer
            self._answer_fault(exchange)
        else:
            if waiting is not None and inspect.isawaitable(waiting):
                self.run(waiting, exchange)

    def run(self, answering: Awaitable[None], exchange: Exchange) -> None:
        """Run ``answering``, which answers ``exchange``, as a task."""
        task = asyncio.ensure_future(self._wait(answering, exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def owes_answers(self) -> bool:
        """Whether a client still waits for an answer, or for the rest of one."""
        return any(connection.owes_answer for connection in self._connections)

    def trim_after(self, exchange: Exchange) -> None:
        """Give memory back to the system some time after ``exchange``, whose body is very large, has gone."""
        weakref.finalize(exchange, self._want_trim).atexit = False

    def _want_trim(self) -> None:
        self._is_trim_due = True

    def _trim(self) -> None:
        assert self._loop is not None
        if self._is_trim_due and self.now - self._trimmed_at >= _TRIM_SECONDS:
            self._is_trim_due = False
            self._trimmed_at = self.now
            self._loop.run_in_executor(None, memory.trim)

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

    async def _wait(self, waiting: Awaitable[None], exchange: Exchange) -> None:
        try:
            await waiting
        except ServeError as error:
            exchange.respond_failure(error)
        except Exception:  # noqa: BLE001 - nothing a request causes may cost another one its answer
            self._answer_fault(exchange)

    def _answer_fault(self, exchange: Exchange) -> None:
        """A fault of ours: the log gets the traceback, the client a plain sentence."""
        logger.exception("%s: serving %s failed", self.name, exchange.target.decode("latin-1"))
        if exchange.data is None:
            exchange.respond_error(500, "internal error in the server; its log has the details")

    def _sweep(self) -> None:
        assert self._loop is not None
        time = self._loop.time()
        # Time in which the loop itself stood still is not held against the clients.
        self.now += min(time - self._swept_at, 2 * _SWEEP_SECONDS)
        self._swept_at = time
        if self._refused:
            logger.warning(
                "%s: %d connections refused, %d are open (--http-max-connections)",
                self.name,
                self._refused,
                len(self._connections),
            )
            self._refused = 0
        self._trim()
        self._sweep_slice(list(self._connections), 0)

    def _sweep_slice(self, connections: list[HttpConnection], start: int) -> None:
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
