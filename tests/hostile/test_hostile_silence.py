"""Clients that say nothing, or too little, too slowly."""

from __future__ import annotations

import itertools
import selectors
import socket
import statistics
import time

from benchmarks.servers import Bident
from hostile import (
    DEADLINE_SECONDS,
    HONEST,
    MAX_SLOWDOWN,
    Honest,
    answers_until_closed,
    connections,
    many_files,
    resident_mb,
    slowdown,
    tensor_request,
)

HALVES = {
    "method": b"PO",
    "target": b"POST /v2/models/echo",
    "head": HONEST.partition(b"\r\n\r\n")[0],
    "body": HONEST[:-10],
    "large body": tensor_request(10_000)[:-1],
    "chunks": b'POST /v2/models/echo/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"inp',
}


def test_10_000_idle_connections_cost_the_others_nothing(victim: Bident, honest: Honest) -> None:
    before_mb = resident_mb(victim)
    with many_files(10_000) as count:
        assert slowdown(honest, lambda: connections(victim, count), pairs=1) < MAX_SLOWDOWN
        with connections(victim, count) as socks:
            honest.ask()
            grown_mb = resident_mb(victim) - before_mb
            assert grown_mb < 20e-3 * count, f"{grown_mb:.0f} MB for {count} connections"
            # They are idle, not dead.
            for sock in (socks[0], socks[-1]):
                sock.sendall(HONEST)
                assert sock.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
        after_mb = resident_mb(victim)
        with connections(victim, count):
            honest.ask()
            assert resident_mb(victim) < after_mb + 0.1 * grown_mb + 10, "what went is not used again"


def test_idle_connections_are_closed_in_the_end(impatient_victim: Bident) -> None:
    with connections(impatient_victim, 500) as socks:
        assert answers_until_closed(socks) == [b""] * 500


def test_half_requests_are_answered_408_and_cost_the_others_nothing(impatient_victim: Bident) -> None:
    honest = Honest(impatient_victim)
    honest.median()
    before = honest.median()
    # Opened last: one that has not begun its request for some seconds is idle, and is closed without a word.
    with connections(impatient_victim, 600) as socks:
        for sock, half in zip(socks, itertools.cycle(HALVES.values()), strict=False):
            sock.sendall(half)
        assert honest.median() / before < MAX_SLOWDOWN
        honest.close()
        answers = answers_until_closed(socks)
    for answer, name in zip(answers, itertools.cycle(HALVES), strict=False):
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n"), name


def test_a_dripping_head_has_to_be_complete_in_time_too(impatient_victim: Bident) -> None:
    head = b"GET /v2 HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 1000
    honest = Honest(impatient_victim)
    honest.median()
    before = honest.median()
    with connections(impatient_victim, 200) as socks:
        answers, times = _drip(socks, head, honest)
        honest.close()
    assert all(answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n") for answer in answers)
    assert statistics.median(times) / before < MAX_SLOWDOWN


def _drip(socks: list[socket.socket], data: bytes, honest: Honest) -> tuple[list[bytes], list[float]]:
    """Send a byte to each connection every 50 ms until the server has answered all of them.

    Returns the answers, and how long an honest client waited for its own ones meanwhile.
    """
    answers: dict[socket.socket, bytes] = {}
    times: list[float] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    with selectors.DefaultSelector() as answered:
        for sock in socks:
            answered.register(sock, selectors.EVENT_READ)
        for byte in data:
            for sock in socks:
                if sock not in answers:
                    sock.sendall(bytes([byte]))
            for key, _ in answered.select(timeout=0.05):
                sock = key.fileobj  # type: ignore[assignment]
                answers[sock] = sock.recv(65536)
                answered.unregister(sock)
            times += [honest.ask() for _ in range(5)]
            if len(answers) == len(socks):
                break
            assert time.monotonic() < deadline, f"{len(answers)} of {len(socks)} have been answered"
    return list(answers.values()), times
