"""A client that reads streams of generated text and notes when the first of it came.

It looks at the bytes alone until the stream is over: parsing every piece would take the core that the
server under test needs.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.servers import HOST

_TEXT = re.compile(rb'"content":"[^"]')
"""The first piece with any text in it: one with a role alone may come before the first token is chosen."""
_COUNT = re.compile(rb'"(?:eval_count|completion_tokens)":(\d+)')
_READ_SIZE = 1 << 16
_TIMEOUT_SECONDS = 60.0


class Asked(Protocol):
    """Whom a request goes to."""

    port: int
    headers: tuple[str, ...]


@dataclass(frozen=True)
class Stream:
    """One answer: seconds from sending the request to its first text and to its end, and its tokens."""

    first_seconds: float
    seconds: float
    tokens: int


@dataclass(frozen=True)
class Crowd:
    """The answers to clients that asked at the same moment."""

    streams: tuple[Stream, ...]
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Of all together."""
        return sum(stream.tokens for stream in self.streams) / self.seconds

    @property
    def worst_first_seconds(self) -> float:
        """How long the client that was served last waited for the first text."""
        return max(stream.first_seconds for stream in self.streams)


def stream(server: Asked, path: str, payload: dict[str, Any]) -> Stream:
    """Ask once, over a connection of its own. Raises RuntimeError for an answer without status, text or count."""
    body = json.dumps(payload).encode()
    lines = [f"POST {path} HTTP/1.1", f"Host: {HOST}:{server.port}", "Content-Type: application/json"]
    lines += [*server.headers, "Connection: close", f"Content-Length: {len(body)}", "", ""]
    message = "\r\n".join(lines).encode() + body
    with socket.create_connection((HOST, server.port), timeout=_TIMEOUT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start = time.perf_counter()
        connection.sendall(message)
        answer, first = b"", 0.0
        while data := connection.recv(_READ_SIZE):
            answer += data
            if not first and _TEXT.search(answer):
                first = time.perf_counter() - start
        seconds = time.perf_counter() - start
    counts = _COUNT.findall(answer)
    if not answer.startswith(b"HTTP/1.1 200") or not first or not counts:
        raise RuntimeError(f"{path} answered {answer[:300]!r}")
    return Stream(first, seconds, int(counts[-1]))


def crowd(server: Asked, path: str, payloads: Sequence[dict[str, Any]]) -> Crowd:
    """Ask for all ``payloads`` at the same moment. Raises RuntimeError if one of them is not answered."""
    streams: list[Stream] = []

    def ask(payload: dict[str, Any]) -> None:
        streams.append(stream(server, path, payload))

    threads = [threading.Thread(target=ask, args=(payload,)) for payload in payloads]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    if len(streams) < len(payloads):
        raise RuntimeError(f"{len(payloads) - len(streams)} of {len(payloads)} answers failed; see above")
    return Crowd(tuple(streams), seconds)
