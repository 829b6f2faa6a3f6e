"""A gRPC door on a real socket, for real clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvloop

from bident.doors.grpc.limits import GrpcLimits
from bident.doors.grpc.server import GrpcServer
from tests.unit.doors.grpc.grpc_line import EchoService


class ListeningServer:
    """A server whose loop runs in a thread of its own."""

    def __init__(self, limits: GrpcLimits, context: ssl.SSLContext | None) -> None:
        self.service = EchoService()
        self._limits = limits
        self._context = context
        self._loop = uvloop.new_event_loop()
        self.server: GrpcServer
        self.port = 0

    def run(self, work: Callable[[], Any]) -> Any:
        """What ``work`` returns, run in the loop."""

        async def call() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(10)

    def start(self) -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        self.port = sock.getsockname()[1]
        self.server = GrpcServer(self.service, self._limits, "test door")
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.server.start(sock, self._context), self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextmanager
def listening(limits: GrpcLimits | None = None, context: ssl.SSLContext | None = None) -> Iterator[ListeningServer]:
    server = ListeningServer(limits or GrpcLimits(), context)
    server.start()
    try:
        yield server
    finally:
        server.stop()
