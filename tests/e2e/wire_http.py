"""HTTP/1.1 by hand, for what no client library would send."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

import httpx
from asking import TIMEOUT_SECONDS, Answer

_CHUNK = 65536


def request(
    path: str, body: bytes = b"", *headers: str, method: str = "POST", version: str = "1.1", length: int | None = None
) -> bytes:
    """A request's bytes; ``length`` is what it says of its body where that is not true."""
    lines = [f"{method} {path} HTTP/{version}", "Host: test", *headers]
    if body or length is not None:
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def infer_body(data: Sequence[float], model_input: str = "X") -> bytes:
    """A JSON request of one FP32 vector."""
    tensor: dict[str, Any] = {"name": model_input, "shape": [len(data)], "datatype": "FP32", "data": list(data)}
    return json.dumps({"inputs": [tensor]}).encode()


class Wire:
    """One connection to a server."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
        self._unread = b""

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> Answer:
        """The next answer, interim ones (100) too."""
        head = self._take_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        status = int(head[0].split(" ")[1])
        pairs = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in head[1:] if line)]
        headers = httpx.Headers(pairs)
        return Answer(status, headers, self._take(int(headers.get("content-length", 0))))

    @property
    def is_closed(self) -> bool:
        """Whether the server closes the connection, and has nothing more to say; waits for that."""
        try:
            return self._unread == b"" and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _take_until(self, mark: bytes) -> bytes:
        while mark not in self._unread:
            self._receive()
        part, _, self._unread = self._unread.partition(mark)
        return part

    def _take(self, size: int) -> bytes:
        while len(self._unread) < size:
            self._receive()
        part, self._unread = self._unread[:size], self._unread[size:]
        return part

    def _receive(self) -> None:
        data = self.socket.recv(_CHUNK)
        if not data:
            raise ConnectionError(f"closed in the middle of an answer: {self._unread[:200]!r}")
        self._unread += data
