"""The gRPC listener: its connections, and what they share."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable

from bident.doors.access import Access
from bident.doors.grpc import frames
from bident.doors.grpc.call import Service, Status
from bident.doors.grpc.connection import GrpcConnection
from bident.doors.grpc.flow import Outflow
from bident.doors.grpc.frames import FIRST_WINDOW, OUR_WINDOW, Setting
from bident.doors.grpc.inbox import WINDOW
from bident.doors.grpc.limits import GrpcLimits, Held
from bident.doors.grpc.status import STATUS
from bident.doors.grpc.stream import Stream
from bident.doors.listener import Listener
from bident.engine.clients import Clients
from bident.errors import ServeError

logger = logging.getLogger("bident.grpc")


class GrpcServer(Listener[GrpcConnection]):
    """Accepts HTTP/2 connections on one address and hands their calls to ``service``."""

    farewell = "the server stops"

    def __init__(
        self,
        service: Service,
        limits: GrpcLimits,
        name: str,
        clients: Clients | None = None,
        *,
        access: Access | None = None,
    ) -> None:
        """``name`` is how the log calls this service; ``clients`` is kept up to date with who is connected."""
        super().__init__(name, clients, connections=limits.connections, read_seconds=limits.read_seconds)
        self.service = service
        self.limits = limits
        self.access = access
        """The rules, if there are any."""
        self.held = Held(limits.held_bytes)
        """What is kept for all clients together."""
        self.most_streams = limits.streams
        """How many calls a connection may have open at the moment."""
        self.hello = frames.settings(
            {
                Setting.MAX_CONCURRENT_STREAMS: limits.streams,
                Setting.INITIAL_WINDOW_SIZE: WINDOW,
                Setting.MAX_HEADER_LIST_SIZE: limits.head_bytes,
            }
        ) + frames.window_update(0, OUR_WINDOW - FIRST_WINDOW)
        """What each connection begins with."""
        self._is_draining = False
        self._written: list[Outflow] = []

    def make_connection(self) -> GrpcConnection:
        return GrpcConnection(self)

    @property
    def is_draining(self) -> bool:
        """While True, clients are asked to go elsewhere with what they have not begun yet."""
        return self._is_draining

    @is_draining.setter
    def is_draining(self, value: bool) -> None:
        self._is_draining = value
        if value:
            for connection in list(self._connections):
                connection.life.drain(self.farewell)

    async def stop(self) -> None:
        """Stop listening, end what is still open with UNAVAILABLE, and cut the connections."""
        for connection in list(self._connections):
            connection.calls.end_all(Status.UNAVAILABLE, "Server exiting")
            connection.outflow.flush()
        await asyncio.sleep(0)  # what has been written goes out
        await super().stop()

    # For the connections

    def flush_soon(self, outflow: Outflow) -> None:
        """Have what ``outflow`` has written sent at the end of this turn of the loop, together with all others'."""
        written = self._written
        if not written:
            self.call_soon(self._flush)
        written.append(outflow)

    def fail(self, stream: Stream, error: Exception) -> None:
        """End the call that ``error`` came out of: a fault of ours leaves a traceback in the log alone."""
        if isinstance(error, ServeError):
            stream.break_off(STATUS[error.code], error.message)
        else:
            method = stream.method.decode("latin-1")
            logger.error("%s: serving %s failed", self.name, method, exc_info=error)
            stream.break_off(Status.INTERNAL, "internal error in the server; its log has the details")

    def run_call(self, answering: Awaitable[None], stream: Stream) -> None:
        """Run ``answering``, which answers the call of ``stream``, as a task."""
        if inspect.isawaitable(answering):
            self.run_task(self._wait(answering, stream))

    async def _wait(self, answering: Awaitable[None], stream: Stream) -> None:
        try:
            await answering
        except Exception as error:  # noqa: BLE001 - nothing a call causes may cost another one its answer
            self.fail(stream, error)

    def _flush(self) -> None:
        written, self._written = self._written, []
        for outflow in written:
            try:
                outflow.flush()
            except Exception:
                # The others still get their answers.
                logger.exception("%s: writing to a client failed", self.name)
                outflow.give_up()

    def before_sweep(self) -> None:
        self.count_calls()

    def count_calls(self) -> None:
        """Where all connections together have too many calls open, give each of them fewer from now on."""
        calls = sum(len(connection.calls.streams) for connection in self._connections)
        self.most_streams = self.limits.streams if calls <= self.limits.calls else self.limits.crowded_streams
