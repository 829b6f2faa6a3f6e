"""A client that sends tensors to an identity model in binary, and checks every byte that comes back.

    python -m benchmarks.echo_client PORT MODEL CONNECTIONS < SHAPES_AS_JSON

It runs as a process of its own. Per request it costs a send from memory that is there already, a receive
into memory that is there already, and a ``memcmp``: with megabytes, as little as a client can cost.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from benchmarks.client import Loop
from benchmarks.servers import HOST, Server

Shape = Sequence[int]

ITEM_BYTES = 4
OFFSETS = 1024
"""So many different starts into the payload: an answer to another request is not taken for the right one."""

HEAD_BYTES = 1 << 16
"""More than the head of any answer takes, HTTP's and the JSON after it."""

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def echo(server: Server, model: str, shapes: Sequence[Shape], *, connections: int) -> Loop:
    """Send one FP32 tensor of each shape, in order, over keep-alive connections that each wait for their answer.

    Raises RuntimeError when an answer is an error or brings other bytes back.
    """
    command = [sys.executable, "-m", "benchmarks.echo_client", str(server.port), model, str(connections)]
    finished = subprocess.run(command, input=json.dumps(shapes), capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise RuntimeError(f"echo from {model} failed: {finished.stderr.strip()}")
    return Loop(**json.loads(finished.stdout))


def request_head(model: str, port: int, shape: Shape) -> bytes:
    """All of an infer request but the tensor's bytes, which follow."""
    size = int(np.prod(shape)) * ITEM_BYTES
    tensor = {"name": "INPUT0", "shape": shape, "datatype": "FP32", "parameters": {"binary_data_size": size}}
    outputs = [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]
    document = json.dumps({"inputs": [tensor], "outputs": outputs})
    return (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {HOST}:{port}\r\n"
        "Content-Type: application/octet-stream\r\n"
        f"Inference-Header-Content-Length: {len(document)}\r\nContent-Length: {len(document) + size}\r\n\r\n{document}"
    ).encode()


class Connection:
    """One keep-alive connection with the buffer that its answers are received into."""

    def __init__(self, port: int, largest: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(largest + HEAD_BYTES)
        self._view = memoryview(self._buffer)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
        self._end = 0

    def exchange(self, head: bytes, tensor: memoryview) -> None:
        """Send one request and receive its answer. Raises RuntimeError unless it is a 200 that fits the buffer."""
        self._socket.sendall(head)
        self._socket.sendall(tensor)
        have = self._receive(0)
        while (stop := self._buffer.find(b"\r\n\r\n", 0, have)) < 0:
            have += self._receive(have)
        lines = bytes(self._view[:stop]).lower().split(b"\r\n")
        length = next((line for line in lines if line.startswith(b"content-length:")), None)
        if not lines[0].startswith(b"http/1.1 200") or length is None:
            raise RuntimeError(f"unexpected answer: {bytes(self._view[: min(have, 500)])!r}")
        self._end = stop + 4 + int(length.split(b":")[1])
        if self._end > len(self._buffer):
            raise RuntimeError(f"an answer of {self._end} bytes to a tensor of {len(tensor)}")
        while have < self._end:
            have += self._receive(have)

    def check(self, sent: int, size: int) -> None:
        """Raises RuntimeError unless the answer ends with the ``size`` bytes that lie at the address ``sent``."""
        if self._end < size or _memcmp(self._address + self._end - size, sent, size) != 0:
            raise RuntimeError(f"other bytes came back than the {size} that were sent")

    def close(self) -> None:
        self._socket.close()

    def _receive(self, have: int) -> int:
        received = self._socket.recv_into(self._view[have:])
        if not received:
            raise RuntimeError("the server closed the connection")
        return received


@dataclass
class Run:
    """What the connections of one process share: the requests to send, the payload they send from, the figures."""

    port: int
    model: str
    largest: int
    work: Iterator[tuple[int, Shape]]
    latencies: list[float] = field(default_factory=list)
    failure: Exception | None = None

    def __post_init__(self) -> None:
        noise = np.random.default_rng(0).standard_normal(self.largest // ITEM_BYTES + OFFSETS, np.float32)
        self._payload = memoryview(noise).cast("B")
        self._address = noise.ctypes.data

    def send_all(self) -> None:
        """Send over one connection until nothing is left, or another connection has failed."""
        try:
            connection = Connection(self.port, self.largest)
            try:
                # One iterator for all threads: advancing a C iterator is one step under the GIL.
                for number, shape in self.work:
                    if self.failure is not None:
                        break
                    self._send(connection, number, shape)
            finally:
                connection.close()
        except (OSError, RuntimeError) as error:
            self.failure = error

    def _send(self, connection: Connection, number: int, shape: Shape) -> None:
        head = request_head(self.model, self.port, shape)
        at, size = number % OFFSETS * ITEM_BYTES, int(np.prod(shape)) * ITEM_BYTES
        start = time.perf_counter()
        connection.exchange(head, self._payload[at : at + size])
        self.latencies.append(time.perf_counter() - start)
        connection.check(self._address + at, size)


def main(port: str, model: str, connections: str) -> None:
    """Send what standard input lists and print the :class:`Loop` as JSON."""
    shapes: list[Shape] = json.load(sys.stdin)
    largest = max(int(np.prod(shape)) for shape in shapes) * ITEM_BYTES
    run = Run(int(port), model, largest, zip(itertools.count(), shapes))
    threads = [threading.Thread(target=run.send_all) for _ in range(int(connections))]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    if run.failure is not None:
        raise run.failure
    loop = Loop(seconds, statistics.median(run.latencies) * 1e3, len(shapes) / seconds)
    print(json.dumps(asdict(loop)))


if __name__ == "__main__":
    main(*sys.argv[1:])
