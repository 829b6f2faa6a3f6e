"""Two small HTTP clients: one for a single answer, one that keeps a few requests in flight.

    python -m benchmarks.client PORT PATH BODY_FILE CONNECTIONS REQUESTS [HEADER=VALUE]...

The closed loop runs as a process of its own and sends a prepared message over plain sockets: its
cost per request is a send and a receive. It counts requests where ``wrk`` counts seconds, which
matters when a request takes tens of milliseconds and a few unfinished ones would bias the result.
"""

from __future__ import annotations

import http.client
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.servers import HOST, Server


@dataclass(frozen=True)
class Loop:
    """What a closed loop saw."""

    seconds: float
    p50_ms: float
    per_second: float


def ask(server: Server, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """POST ``body`` once and return the answer's body. Raises RuntimeError unless the status is 200."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=30)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{path} answered {answer.status}: {content[:300]!r}")
    return content


def infer(server: Server, model: str, body: bytes) -> dict[str, list[Any]]:
    """Ask for one JSON inference: each output's flat data by name."""
    answer = json.loads(ask(server, f"/v2/models/{model}/infer", body))
    return {output["name"]: output["data"] for output in answer["outputs"]}


def closed_loop(
    server: Server, path: str, body: Path, *, connections: int, requests: int, headers: Mapping[str, str] | None = None
) -> Loop:
    """Send ``requests`` requests over ``connections`` keep-alive connections, each waiting for its answer."""
    words = [str(server.port), path, str(body), str(connections), str(requests)]
    words += [f"{name}={value}" for name, value in (headers or {}).items()]
    command = [sys.executable, "-m", "benchmarks.client", *words]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise RuntimeError(f"closed loop on {path} failed: {finished.stderr.strip()}")
    return Loop(**json.loads(finished.stdout))


@dataclass
class _Run:
    """What the threads of one closed loop share."""

    port: int
    message: bytes
    remaining: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    latencies: list[float] = field(default_factory=list)
    failure: Exception | None = None

    def take(self) -> bool:
        """Claim one of the requests that are left to send."""
        with self.lock:
            self.remaining -= 1
            return self.remaining >= 0 and self.failure is None

    def work(self) -> None:
        """Send and receive over one connection until nothing is left."""
        try:
            with socket.create_connection((HOST, self.port), timeout=60) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while self.take():
                    start = time.perf_counter()
                    connection.sendall(self.message)
                    _receive(connection)
                    self.latencies.append(time.perf_counter() - start)
        except (OSError, RuntimeError) as error:
            self.failure = error


def _receive(connection: socket.socket) -> None:
    """Read one answer to its end. Raises RuntimeError unless it is a 200 with a Content-Length."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += _some(connection)
    head = data[:end].lower()
    length = next((line for line in head.split(b"\r\n") if line.startswith(b"content-length:")), None)
    if not head.startswith(b"http/1.1 200") or length is None:
        raise RuntimeError(f"unexpected answer: {data[:300]!r}")
    left = int(length.split(b":")[1]) - (len(data) - end - 4)
    while left > 0:
        left -= len(_some(connection))


def _some(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 18)
    if not data:
        raise RuntimeError("the server closed the connection")
    return data


def main(port: str, path: str, body: str, connections: str, requests: str, *headers: str) -> None:
    """Run one closed loop and print its :class:`Loop` as JSON."""
    content = Path(body).read_bytes()
    lines = [f"POST {path} HTTP/1.1", f"Host: {HOST}:{port}", f"Content-Length: {len(content)}"]
    lines += [header.replace("=", ": ", 1) for header in headers]
    run = _Run(int(port), "\r\n".join([*lines, "", ""]).encode() + content, int(requests))
    threads = [threading.Thread(target=run.work) for _ in range(int(connections))]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    if run.failure:
        raise run.failure
    p50 = statistics.median(run.latencies)
    print(json.dumps({"seconds": seconds, "p50_ms": p50 * 1e3, "per_second": int(requests) / seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
