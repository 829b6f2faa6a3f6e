"""A call's answers on their way through compression, in their order."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from bident.doors.aside import aside
from bident.doors.grpc.call import Buffer
from bident.doors.grpc.packing import PACK_HERE, Coding, pack

if TYPE_CHECKING:
    from bident.doors.grpc.server import GrpcServer
    from bident.doors.grpc.stream import Stream


class Outbox:
    """Compresses the messages of one call: small ones at once, large ones in a thread, the rest waiting for those."""

    __slots__ = ("_coding", "_end", "_server", "_stream", "_waiting", "is_busy", "size")

    def __init__(self, stream: Stream, coding: Coding, server: GrpcServer) -> None:
        self._stream = stream
        self._coding = coding
        self._server = server
        self._waiting: deque[Buffer] = deque()
        self._end: tuple[int, str] | None = None
        self.is_busy = False
        self.size = 0
        """How many bytes wait to be compressed."""

    def send(self, message: Buffer) -> None:
        """Compress and send ``message``."""
        if self.is_busy:
            self._keep(message)
        elif len(message) > PACK_HERE:
            self.is_busy = True
            self._keep(message)
            self._server.run_call(self._work_off(), self._stream)
        else:
            self._stream.send_packed(pack(self._coding, self._level, message))

    def finish(self, status: int, message: str) -> None:
        """End the call once everything has been sent."""
        self._end = (status, message)

    @property
    def _level(self) -> int:
        return self._server.limits.compression_level

    def _keep(self, message: Buffer) -> None:
        self._waiting.append(message)
        self._count(len(message))

    def _count(self, size: int) -> None:
        self.size += size
        self._server.held.size += size

    async def _work_off(self) -> None:
        waiting = self._waiting
        try:
            while waiting and not self._stream.is_closed:
                packed = await aside(partial(pack, self._coding, self._level, waiting[0]))
                self._count(-len(waiting.popleft()))
                if not self._stream.is_closed:
                    self._stream.send_packed(packed)
        finally:
            self._count(-self.size)
            waiting.clear()
            self.is_busy = False
        if self._end is not None and not self._stream.is_closed:
            self._stream.end(*self._end)
