"""The least gRPC client that can ask for a stream: it must not be what a benchmark measures.

It grants the server all the room there is, writes one call and reads until the call's trailers. What
came is looked at afterwards.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _WINDOW_UPDATE = 0, 1, 4, 8
_END_STREAM, _END_HEADERS = 1, 4
_HEAD = 9
_ROOM = 2**31 - 1
_SPENT = 65_535
"""The connection's window has this much before anything is granted."""


@dataclass(frozen=True)
class Answer:
    """The messages of one call, and the seconds from sending it to its trailers."""

    messages: list[bytes]
    seconds: float


def call(host: str, port: int, method: str, message: bytes, *, timeout: float = 60.0) -> Answer:
    """Call ``method`` (``/package.Service/Method``) with one ``message`` and no more. Raises OSError."""
    with socket.create_connection((host, port), timeout) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(
            PREFACE
            + _frame(_SETTINGS, 0, 0, b"\x00\x04" + _ROOM.to_bytes(4, "big"))
            + _frame(_WINDOW_UPDATE, 0, 0, (_ROOM - _SPENT).to_bytes(4, "big"))
        )
        body = b"\x00" + len(message).to_bytes(4, "big") + message
        started = time.perf_counter()
        connection.sendall(
            _frame(_HEADERS, _END_HEADERS, 1, _head(f"{host}:{port}", method)) + _frame(_DATA, _END_STREAM, 1, body)
        )
        data = _read_to_trailers(connection)
        return Answer(_messages(data), time.perf_counter() - started)


def _read_to_trailers(connection: socket.socket) -> bytes:
    """The payloads of all DATA frames, one behind the other."""
    payloads: list[bytes] = []
    unread = b""
    while True:
        received = connection.recv(1 << 20)
        if not received:
            raise ConnectionResetError("the server closed the connection in the middle of a call")
        unread = unread + received if unread else received
        at, end = 0, len(unread)
        while end - at >= _HEAD:
            size = int.from_bytes(unread[at : at + 3], "big")
            if end - at - _HEAD < size:
                break
            kind, flags = unread[at + 3], unread[at + 4]
            if kind == _DATA:
                payloads.append(unread[at + _HEAD : at + _HEAD + size])
            elif kind == _SETTINGS and not flags & 1:
                connection.sendall(_frame(_SETTINGS, 1, 0, b""))
            if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
                return b"".join(payloads)
            at += _HEAD + size
        unread = unread[at:]


def _messages(data: bytes) -> list[bytes]:
    messages = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 1 : at + 5], "big")
        messages.append(data[at + 5 : at + 5 + size])
        at += 5 + size
    return messages


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _head(authority: str, method: str) -> bytes:
    """The call's headers, each a literal that is not indexed."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": authority,
        "te": "trailers",
        "content-type": "application/grpc",
    }
    return b"".join(
        b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )
