"""``grpc.health.v1.Health``: the standard health check, which follows the server's readiness as with Triton.

Triton has ``Check`` alone; ``Watch`` is Bident's.
"""

from __future__ import annotations

import asyncio
import logging

from bident.doors.grpc.call import Buffer, Call
from bident.doors.grpc.descriptors import DeclaredFile
from bident.doors.grpc.infer_request import parse
from bident.engine.engine import Engine
from bident.errors import ServeError

logger = logging.getLogger("bident.grpc")

FILE = DeclaredFile(
    "grpc/health/v1/health.proto",
    "grpc.health.v1",
    {
        "HealthCheckRequest": ("string service = 1",),
        "HealthCheckResponse": ("ServingStatus status = 1",),
    },
    enums={"HealthCheckResponse.ServingStatus": ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")},
    services={
        "Health": (
            ("Check", "HealthCheckRequest", "HealthCheckResponse", False, False),
            ("Watch", "HealthCheckRequest", "HealthCheckResponse", False, True),
        )
    },
)
_Request = FILE.messages["HealthCheckRequest"]
_Response = FILE.messages["HealthCheckResponse"]
_SERVING = 1
_NOT_SERVING = 2

WATCH_SECONDS = 0.5
"""How often watched readiness is looked at."""


class Health:
    """Says whether one engine is ready. Any service name means the server, as with Triton."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._watches: set[_Watch] = set()
        self._watching: asyncio.Task[None] | None = None

    async def check(self, call: Call, message: Buffer) -> None:
        """Whether the server is ready. Raises UNAVAILABLE on its way out."""
        parse(_Request, message)
        self._engine.check_running()
        call.reply(_said(await self._status()))

    def watch(self, call: Call) -> None:
        """Whether the server is ready, now and whenever that changes."""
        watch = _Watch(call)

        def begin(message: Buffer) -> None:
            parse(_Request, message)
            self._watches.add(watch)
            if self._watching is None:
                self._watching = asyncio.get_running_loop().create_task(self._follow())

        def end() -> None:
            self._watches.discard(watch)

        call.on_message = begin
        call.on_half_close = lambda: None  # the client has asked all it has to; it goes on listening
        call.on_cancel = end

    async def _follow(self) -> None:
        """Tell all who watch, until none does."""
        try:
            while self._watches:
                status = await self._status()
                is_stopping = self._is_stopping
                for watch in list(self._watches):
                    watch.tell(_NOT_SERVING if is_stopping else status)
                    if is_stopping:
                        watch.end()
                if is_stopping:
                    self._watches.clear()
                    return
                await asyncio.sleep(WATCH_SECONDS)
        finally:
            self._watching = None

    @property
    def _is_stopping(self) -> bool:
        try:
            self._engine.check_running()
        except ServeError:
            return True
        return False

    async def _status(self) -> int:
        try:
            return _SERVING if await self._engine.check_ready() else _NOT_SERVING
        except Exception:
            logger.exception("the server could not find out whether it is ready")
            return _NOT_SERVING


class _Watch:
    """One client that watches, and what it was last told."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._told = -1

    def tell(self, status: int) -> None:
        if status != self._told:
            self._told = status
            self._call.send(_said(status))

    def end(self) -> None:
        self._call.on_cancel = None
        self._call.finish()


def _said(status: int) -> bytes:
    text: bytes = _Response(status=status).SerializeToString()
    return text
