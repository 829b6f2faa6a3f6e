"""Clients that ask for much and do not read it, read it slowly, or leave in the middle of it."""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import struct
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks.servers import Bident
from hostile import (
    HONEST,
    HONEST_DATA,
    MAX_SLOWDOWN,
    Honest,
    connect,
    processor_seconds,
    read_answer,
    request,
    reset,
    resident_mb,
    send_what_fits,
    settled,
    tensor_request,
)
from tests.conftest import Serve, write_identity

MILLION = 1_000_000
"""Elements of a large tensor: 4 MB each way."""

GET = request("/v2/models/echo/config", method="GET")


@contextlib.contextmanager
def deaf_clients(server: Bident, count: int, data: bytes) -> Iterator[list[socket.socket]]:
    """Clients that have sent ``data``, or as much of it as the server takes, and never read."""
    socks = [connect(server, receive_buffer=4096) for _ in range(count)]
    try:
        for sock in socks:
            send_what_fits(sock, data)
        yield socks
    finally:
        for sock in socks:
            reset(sock)


def test_large_answers_that_nobody_reads(victim: Bident, honest: Honest) -> None:
    large = tensor_request(MILLION)
    before_mb = resident_mb(victim)
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(contextlib.closing(connect(victim, receive_buffer=4096))) for _ in range(20)]
        before = honest.median()
        for sock in socks:
            sock.sendall(large)
        assert honest.median() / before < MAX_SLOWDOWN
        grown_mb = settled(partial(resident_mb, victim)) - before_mb
        # Each holds its answer (4 MB), which is a view of its request (4 MB), and what the allocator keeps.
        assert grown_mb < 20 * 4 * 3 + 30
    honest.ask()


def test_a_client_that_asks_for_more_and_more_and_never_reads(victim: Bident, honest: Honest) -> None:
    """At some time nothing more is read from it, so that neither questions nor answers pile up."""
    before_mb = resident_mb(victim)
    large = tensor_request(MILLION)
    with deaf_clients(victim, 5, b"") as socks:
        sent = 0
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline and sent < 200 * len(large):
            sent += sum(send_what_fits(sock, large) for sock in socks)
            honest.ask()
        assert settled(partial(resident_mb, victim)) - before_mb < 5 * 4 * 8 + 50
    honest.ask()


FLOODS = {
    "infer": HONEST,
    "get": GET,
    "nowhere": b"POST / HTTP/1.1\r\nHost: a\r\n\r\n",
    "wrong": HONEST.replace(b"FP32", b"FP31"),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_thousands_of_pipelined_requests_whose_answers_nobody_reads(victim: Bident, honest: Honest, flood: str) -> None:
    with contextlib.closing(connect(victim)) as sock:
        sock.sendall(FLOODS[flood])
        read_answer(sock)  # whatever is slow the first time
    before_mb, quiet = resident_mb(victim), honest.median()
    with deaf_clients(victim, 10, FLOODS[flood] * (2_000_000 // len(FLOODS[flood]))):
        # Ten clients are served beside this one until their answers do not go out any more.
        assert honest.median() < MAX_SLOWDOWN * quiet + 0.01
        settled(partial(processor_seconds, victim))
        assert honest.median() < MAX_SLOWDOWN * quiet
        assert resident_mb(victim) - before_mb < 80


@pytest.mark.parametrize("unit", [HONEST, GET], ids=["infer", "get"])
def test_a_client_that_pipelines_and_reads_gets_its_share_and_no_more(
    victim: Bident, honest: Honest, unit: bytes
) -> None:
    count = 5000
    quiet = honest.median()
    times: list[float] = []
    with contextlib.closing(connect(victim)) as greedy:
        greedy.setblocking(False)
        flood, sent, received = memoryview(unit * count), 0, b""
        while received.count(b"HTTP/1.1 200 OK\r\n") < count:
            with contextlib.suppress(BlockingIOError):
                sent += greedy.send(flood[sent : sent + (1 << 20)])
            with contextlib.suppress(BlockingIOError):
                received += greedy.recv(1 << 20)
            times.append(honest.ask())
            assert len(times) < 20_000
    assert statistics.median(times) < MAX_SLOWDOWN * quiet


def test_pipelined_answers_come_in_order(victim: Bident) -> None:
    count = 3000
    questions = [
        request(
            "/v2/models/echo/infer",
            json.dumps(
                {"id": str(n), "inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [n]}]}
            ).encode(),
        )
        for n in range(count)
    ]
    with contextlib.closing(connect(victim)) as sock:
        sock.setblocking(False)
        flood, sent, received = b"".join(questions), 0, b""
        deadline = time.monotonic() + 20
        while received.count(b"HTTP/1.1 ") < count or not received.endswith(b"]}]}"):
            assert time.monotonic() < deadline
            with contextlib.suppress(BlockingIOError):
                sent += sock.send(flood[sent:])
            with contextlib.suppress(BlockingIOError):
                received += sock.recv(1 << 20)
    answers = [json.loads(part.partition(b"\r\n\r\n")[2]) for part in received.split(b"HTTP/1.1 200 OK\r\n")[1:]]
    assert [answer["id"] for answer in answers] == [str(n) for n in range(count)]
    assert [answer["outputs"][0]["data"] for answer in answers] == [[n] for n in range(count)]


def test_a_slow_reader_gets_every_byte(victim: Bident, honest: Honest) -> None:
    with contextlib.closing(connect(victim, receive_buffer=4096)) as sock:
        sock.sendall(tensor_request(MILLION))
        received = b""
        while not received.endswith(struct.pack("<f", 1.0)) or len(received) < 4 * MILLION:
            data = sock.recv(16384)
            assert data, "cut short"
            received += data
            if len(received) % 50 == 0:
                honest.ask()
        assert received.count(struct.pack("<f", 1.0)) >= MILLION


def test_connections_reset_in_the_middle_of_their_answers(victim: Bident, honest: Honest) -> None:
    large = tensor_request(250_000)

    def rude_round(count: int) -> None:
        for _ in range(count):
            sock = connect(victim, receive_buffer=4096)
            sock.sendall(large)
            sock.recv(1000)
            reset(sock)

    rude_round(30)
    honest.ask()
    before_mb = settled(partial(resident_mb, victim))
    rude_round(150)
    honest.ask()
    assert settled(partial(resident_mb, victim)) - before_mb < 30, "150 MB of answers have been dropped"


def test_connections_reset_in_the_middle_of_their_requests(victim: Bident, honest: Honest) -> None:
    large = tensor_request(250_000)
    for cut in range(0, len(large), len(large) // 100):
        sock = connect(victim)
        sock.sendall(large[:cut])
        reset(sock)
    honest.ask()


def test_a_client_that_does_not_read_cannot_hold_up_the_end_for_ever(serve: Serve, tmp_path: Path) -> None:
    write_identity(tmp_path / "models", "echo")
    server = serve(tmp_path / "models", "--exit-timeout-secs=1")
    with contextlib.closing(connect(server, receive_buffer=4096)) as sock:
        sock.sendall(tensor_request(MILLION))
        assert sock.recv(1, socket.MSG_PEEK) == b"H", "its answer has begun"
        start = time.monotonic()
        server.stop()
        assert 1 < time.monotonic() - start < 10, "it is given its time, and no more"


def test_the_honest_client_is_told_the_truth_all_the_time(victim: Bident, honest: Honest) -> None:
    with deaf_clients(victim, 3, HONEST * 5000), contextlib.closing(connect(victim)) as sock:
        for _ in range(100):
            sock.sendall(HONEST)
            status, body = read_answer(sock)
            assert status == 200
            assert json.loads(body)["outputs"][0]["data"] == HONEST_DATA
