"""HTTP connections of the text server: uvicorn's, with bounds on what arrives before a request begins."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_HEAD_BYTES = 64 * 1024
_HEAD_SECONDS = 30.0
"""From the first byte of a request, or from connecting, to the end of its headers."""
_WITHOUT_CHUNKS = "1.0"


class Connection(HttpToolsProtocol):
    """uvicorn's connection reads heads of any length for any time, and sends chunks to clients of HTTP/1.0, which know
    none; this one does neither.
    """

    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()
        if self.scope["http_version"] == _WITHOUT_CHUNKS:
            _send_unchunked(self.cycle)

    def _expect_head(self) -> None:
        self._end_head()
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(_HEAD_SECONDS, self._give_up)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > _HEAD_BYTES:
            # The parser passes it on as an error of its own, which uvicorn answers and closes the connection for.
            raise ValueError(f"the head of a request may have {_HEAD_BYTES} bytes")


def _send_unchunked(cycle: RequestResponseCycle) -> None:
    """Have an answer of unknown length end with its connection, as HTTP/1.0 has it (RFC 9112, 6.3)."""
    send, is_measured = cycle.send, True

    async def sending(message: Any) -> None:
        nonlocal is_measured
        if message["type"] == "http.response.start":
            is_measured = any(name.lower() == b"content-length" for name, _ in message["headers"])
            cycle.chunked_encoding = None if is_measured else False
        elif not is_measured:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    cycle.send = sending  # type: ignore[method-assign]
