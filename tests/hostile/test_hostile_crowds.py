"""Too many clients, too many requests of clients that have gone, too much in a small parcel."""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import struct
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.servers import Bident
from hostile import (
    DEADLINE_SECONDS,
    HONEST,
    MAX_SLOWDOWN,
    Honest,
    connect,
    connections,
    eventually,
    read_answer,
    request,
    reset,
    resident_mb,
    tensor_request,
)
from tests.conftest import Serve, write_identity
from tests.e2e.serving import Gate, TensorServer, install_gated

GATED = """
backend: "gated"
max_batch_size: 4
input [ { name: "X", data_type: TYPE_INT32, dims: [ 1 ] } ]
output [ { name: "Y", data_type: TYPE_INT32, dims: [ 1 ] } ]
"""


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate")
    yield made
    made.open()


@pytest.fixture
def gated(tmp_path: Path, gate: Gate) -> Iterator[Bident]:
    """A server whose model ``gated`` runs when ``gate`` is open, beside ``echo``."""
    folder = tmp_path / "models" / "gated"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(GATED + gate.parameters())
    write_identity(tmp_path / "models", "echo")
    server = TensorServer(tmp_path / "models", tmp_path / "log", plugins=install_gated(tmp_path / "plugins"))
    with server:
        yield server
        gate.open()
    assert "Traceback" not in server.log_text


def gated_request(number: int) -> bytes:
    tensor = {"name": "X", "shape": [1, 1], "datatype": "INT32", "data": [number]}
    return request("/v2/models/gated/infer", json.dumps({"inputs": [tensor]}).encode())


def pending(server: Bident) -> int:
    """Requests that wait for the model ``gated``."""
    with contextlib.closing(socket.create_connection(("127.0.0.1", server.metrics_port))) as sock:  # type: ignore[attr-defined]
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        _, page = read_answer(sock)
    prefix = b'nv_inference_pending_request_count{model="gated",version="1"} '
    (line,) = [line for line in page.splitlines() if line.startswith(prefix)]
    return int(line.removeprefix(prefix))


def test_the_queued_requests_of_those_who_left_are_never_run(gated: Bident, gate: Gate) -> None:
    honest = Honest(gated)
    honest.median()
    quiet = honest.median()
    with contextlib.closing(connect(gated)) as first:
        first.sendall(gated_request(-1))
        assert gate.wait_for_batches(1) == [[[-1]]]
        with connections(gated, 300) as leaving, connections(gated, 5) as staying:
            for number, sock in enumerate(leaving):
                sock.sendall(gated_request(number) * 3)
            for number, sock in enumerate(staying):
                sock.sendall(gated_request(1000 + number))
            eventually(lambda: pending(gated) == 905, "everybody waits")
            times = []
            for number, sock in enumerate(leaving):
                if number % 2:
                    reset(sock)
                else:
                    sock.close()
                if number % 10 == 0:
                    times.append(honest.ask())
            eventually(lambda: pending(gated) == 5, "those who left wait no more")
            assert statistics.median(times) < MAX_SLOWDOWN * quiet + 0.001
            gate.open()
            for number, sock in enumerate(staying):
                status, body = read_answer(sock)
                assert (status, json.loads(body)["outputs"][0]["data"]) == (200, [1000 + number])
        assert read_answer(first)[0] == 200
    honest.close()
    executed = [row for batch in gate.batches for row in batch]
    assert sorted(executed) == [[-1], *([1000 + number] for number in range(5))]


def test_a_client_that_left_during_a_run_gets_nobody_elses_answer(gated: Bident, gate: Gate) -> None:
    with contextlib.closing(connect(gated)) as gone:
        gone.sendall(gated_request(1))
        gate.wait_for_batches(1)
    with contextlib.closing(connect(gated)) as next_client:
        next_client.sendall(gated_request(2))
        eventually(lambda: pending(gated) == 1, "the next one waits")
        gate.open()
        status, body = read_answer(next_client)
        assert (status, json.loads(body)["outputs"][0]["data"]) == (200, [2])


def test_too_many_connections_are_cut_and_those_there_are_go_on(serve: Serve, tmp_path: Path) -> None:
    write_identity(tmp_path / "models", "echo")
    server = serve(tmp_path / "models", "--http-max-connections=50")
    honest = Honest(server)
    with connections(server, 200) as socks:
        honest.median()
        cut = 0
        for sock in socks:
            sock.settimeout(0.01)
            with contextlib.suppress(TimeoutError):
                try:
                    cut += sock.recv(1) == b""
                except ConnectionResetError:
                    cut += 1
        assert cut == 200 - 49
    log = server.log.read_text()
    eventually(lambda: _serves(server), "a new client is let in")
    assert "Traceback" not in log
    assert len(log.splitlines()) < 40, "a line for each of them would fill the disk"
    honest.close()


def _serves(server: Bident) -> bool:
    with contextlib.closing(connect(server)) as sock:
        try:
            sock.sendall(HONEST)
            return read_answer(sock)[0] == 200
        except ConnectionError:
            return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets us change the limits of another process")
def test_running_out_of_file_descriptors_is_survived(victim: Bident, honest: Honest) -> None:
    process = psutil.Process(victim.pid)
    limits = process.rlimit(psutil.RLIMIT_NOFILE)
    process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds() + 20, limits[1]))
    with connections(victim, 100) as socks:
        for _ in range(20):
            honest.ask()
        socks[0].sendall(HONEST)
        assert read_answer(socks[0])[0] == 200
    eventually(lambda: _serves(victim), "new clients are served again")
    assert victim.log.stat().st_size < 200_000


def bomb(size: int) -> bytes:
    """A gzip request body of zeros that unpacks to ``size`` bytes."""
    machine = zlib.compressobj(9, wbits=31)
    block = bytes(1 << 20)
    return b"".join([*(machine.compress(block) for _ in range(size >> 20)), machine.flush()])


@pytest.mark.parametrize(("megabytes", "reason"), [(63, "failed to parse"), (500, "once decompressed")])
def test_bombs_are_defused_beside_the_others_work(victim: Bident, honest: Honest, megabytes: int, reason: str) -> None:
    parcel = request("/v2/models/echo/infer", bomb(megabytes << 20), "Content-Encoding: gzip")
    before_mb, quiet = resident_mb(victim), honest.median()
    times: list[float] = []
    peak_mb = 0.0
    with connections(victim, 10) as socks:
        for sock in socks:
            sock.sendall(parcel)
        answers: list[tuple[int, bytes]] = []
        reader = threading.Thread(target=lambda: answers.extend(read_answer(sock) for sock in socks))
        reader.start()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while reader.is_alive():
            assert time.monotonic() < deadline
            times.append(honest.ask())
            peak_mb = max(peak_mb, resident_mb(victim))
    assert [status for status, _ in answers] == [400] * 10
    assert all(reason in json.loads(body)["error"] for _, body in answers)
    assert statistics.median(times) < MAX_SLOWDOWN * quiet
    assert peak_mb - before_mb < 10 * 64 * 2.2 + 50


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_large_answer_is_packed_beside_the_others_work(victim: Bident, honest: Honest, encoding: str) -> None:
    elements = 2_000_000
    quiet = honest.median()
    times: list[float] = []
    with contextlib.closing(connect(victim)) as sock:
        head, _, body = tensor_request(elements).partition(b"\r\n\r\n")
        sock.sendall(head + b"\r\nAccept-Encoding: " + encoding.encode() + b"\r\n\r\n" + body)
        answers: list[tuple[int, bytes]] = []
        reader = threading.Thread(target=lambda: answers.append(read_answer(sock)))
        reader.start()
        while reader.is_alive():
            times.append(honest.ask())
    ((status, packed),) = answers
    assert status == 200
    assert len(packed) < 100_000
    unpacked = zlib.decompress(packed, wbits=31 if encoding == "gzip" else 15)
    assert unpacked.endswith(struct.pack("<f", 1.0) * elements)
    assert len(times) < 5 or statistics.median(times) < MAX_SLOWDOWN * quiet
