"""What hostile clients and their victims have in common: sockets, and how long an honest request takes meanwhile."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import selectors
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterator

import psutil

from benchmarks.servers import HOST, Bident

DEADLINE_SECONDS = 30.0
MAX_SLOWDOWN = 5.0
# Linux answers on all of 127.0.0.0/8, others on 127.0.0.1 alone.
_LOOPBACK = [HOST, "127.0.0.2", "127.0.0.3"] if sys.platform == "linux" else [HOST]
_IP_BIND_ADDRESS_NO_PORT = 24
"""Linux: the port is found when it is known whom it connects to. The module ``socket`` has it from Python 3.12 on."""
_LENGTH = re.compile(rb"(?i)content-length: (\d+)")


def request(path: str, body: bytes = b"", *headers: str, method: str = "POST") -> bytes:
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def tensor_request(elements: int) -> bytes:
    """A binary request to the identity model ``echo``, whose answer is as large."""
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "X",
                    "datatype": "FP32",
                    "shape": [1, elements],
                    "parameters": {"binary_data_size": 4 * elements},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    raw = struct.pack("<I", 0x3F800000) * elements
    return request("/v2/models/echo/infer", head + raw, f"Inference-Header-Content-Length: {len(head)}")


HONEST = request(
    "/v2/models/echo/infer",
    b'{"inputs":[{"name":"X","datatype":"FP32","shape":[1,4],"data":[5.5,3.5,1.25,0.5]}]}',
)
HONEST_DATA = [5.5, 3.5, 1.25, 0.5]


def connect(server: Bident, *, receive_buffer: int = 0, source: str = HOST) -> socket.socket:
    """A connection; a small ``receive_buffer`` makes the server feel soon that nobody reads."""
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(DEADLINE_SECONDS)
    if sys.platform == "linux":
        # Bound without it, a port must be free for every server: with thousands of closed connections about, which
        # the tests before leave, the search for each takes milliseconds, and these servers do not wait that long.
        sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
    sock.bind((source, 0))
    sock.connect((HOST, server.port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def reset(sock: socket.socket) -> None:
    """Close a connection in the rudest way."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def send_what_fits(sock: socket.socket, data: bytes) -> int:
    """Send without waiting; how many bytes the kernel took."""
    sock.setblocking(False)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while sent < len(data):
            sent += sock.send(data[sent : sent + 65536])
    return sent


def read_answer(sock: socket.socket) -> tuple[int, bytes]:
    """Status and body of the next answer. Raises ConnectionError when the connection ends before it does."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(sock)
    head, _, body = data.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    assert length, head
    parts, left = [body], int(length[1]) - len(body)
    while left > 0:
        parts.append(_some(sock))
        left -= len(parts[-1])
    return int(head.split(b" ")[1]), b"".join(parts)


def _some(sock: socket.socket) -> bytes:
    data = sock.recv(1 << 18)
    if not data:
        raise ConnectionError("closed by the server")
    return data


class Honest:
    """A client that asks one small question after the other over one connection."""

    def __init__(self, server: Bident) -> None:
        self._sock = connect(server)

    def ask(self) -> float:
        """Seconds until the right answer has come."""
        start = time.perf_counter()
        self._sock.sendall(HONEST)
        status, body = read_answer(self._sock)
        took = time.perf_counter() - start
        assert status == 200, body
        assert json.loads(body)["outputs"][0]["data"] == HONEST_DATA
        return took

    def median(self, count: int = 150) -> float:
        """The median of some questions."""
        return statistics.median(self.ask() for _ in range(count))

    def close(self) -> None:
        self._sock.close()


def slowdown(honest: Honest, attack: Callable[[], contextlib.AbstractContextManager[object]], pairs: int = 3) -> float:
    """How many times longer an honest request takes during ``attack``: the median of pairs of before and during."""
    ratios = []
    for _ in range(pairs):
        before = honest.median()
        with attack():
            ratios.append(honest.median() / before)
    return statistics.median(ratios)


def resident_mb(server: Bident) -> float:
    """What the server's process holds in memory, in MB."""
    return float(psutil.Process(server.pid).memory_info().rss) / 1e6


def eventually(condition: Callable[[], object], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Return once ``condition`` holds; AssertionError naming ``what`` when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        time.sleep(0.01)


def processor_seconds(server: Bident) -> float:
    """The processor time that the server has used."""
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)


def settled(value: Callable[[], float], seconds: float = DEADLINE_SECONDS) -> float:
    """A figure, once it has stood still for a quarter of a second."""
    deadline = time.monotonic() + seconds
    last, since = value(), time.monotonic()
    while time.monotonic() - since < 0.25:
        assert time.monotonic() < deadline, f"still moving after {seconds:g} s: {last}"
        time.sleep(0.02)
        if (now := value()) != last:
            last, since = now, time.monotonic()
    return last


@contextlib.contextmanager
def many_files(wanted: int) -> Iterator[int]:
    """Let this process have ``wanted`` connections open; how many it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted + 500 if hard == resource.RLIM_INFINITY else min(wanted + 500, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    try:
        yield min(wanted, max(soft, allowed) - 500)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def connections(server: Bident, count: int) -> Iterator[list[socket.socket]]:
    """So many connections; from several addresses, because one has only so many ports."""
    socks: list[socket.socket] = []
    try:
        for number in range(count):
            socks.append(connect(server, source=_LOOPBACK[number // 5000 % len(_LOOPBACK)]))
        yield socks
    finally:
        for sock in socks:
            sock.close()


def answers_until_closed(socks: list[socket.socket], seconds: float = DEADLINE_SECONDS) -> list[bytes]:
    """Everything that comes over each connection until the server has closed it."""
    received = dict.fromkeys(socks, b"")
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for sock in socks:
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ)
        while selector.get_map():
            assert time.monotonic() < deadline, f"{len(selector.get_map())} of {len(socks)} connections are still open"
            for key, _ in selector.select(timeout=0.1):
                sock: socket.socket = key.fileobj  # type: ignore[assignment]
                try:
                    data = sock.recv(65536)
                except ConnectionResetError:
                    data = b""
                received[sock] += data
                if not data:
                    selector.unregister(sock)
    return [received[sock] for sock in socks]
