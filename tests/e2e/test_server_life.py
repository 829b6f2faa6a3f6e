"""A server process from its start to its exit code: what it loads, how it stops, and what keeps it from starting."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import httpx
import pytest
from asking import Asker, x
from model_folders import parameters, write_identity, write_model, x_to_y
from serving import Gate, Launch, TensorServer, eventually
from wire_http import Wire, infer_body, request

HELD = "/v2/models/held/infer"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "repository"
    made.mkdir()
    return made


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def write_held(repository: Path, gate: Gate, *, at_load: bool = False) -> None:
    """A model of one instance that waits at ``gate``, when it executes or when it loads."""
    held = gate.parameters(at_load=at_load) + parameters(LANE="thread")
    write_model(repository, "held", f'backend: "gated"\n{x_to_y()}{held}')


def pending(server: TensorServer) -> int:
    page = httpx.get(f"http://127.0.0.1:{server.metrics_port}/metrics", trust_env=False).text
    (line,) = [line for line in page.splitlines() if line.startswith('nv_inference_pending_request_count{model="held"')]
    return int(line.rsplit(" ", 1)[1])


def in_flight(server: TensorServer, gate: Gate, count: int) -> list[Wire]:
    """Connections whose requests to the held model are accepted and not answered: one runs, the others wait."""
    wires = [Wire(server.port) for _ in range(count)]
    for number, wire in enumerate(wires):
        wire.send(request(HELD, infer_body([number])))
    gate.wait_for_batches(1)
    eventually(lambda: pending(server) == count - 1, f"{count} requests are accepted")
    return wires


# Stopping.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_lets_requests_in_flight_finish_and_refuses_new_ones(
    launch: Launch, repository: Path, gate: Gate, number: int
) -> None:
    write_held(repository, gate)
    write_identity(repository, "quick")
    server = launch(repository)
    kept = Wire(server.port)
    kept.send(request("/v2/models/quick/infer", infer_body([1])))
    assert kept.read().data() == [1.0]
    wires = in_flight(server, gate, 3)

    server.signal(number)
    eventually(lambda: f"Signal ({number:d}) received." in server.log_text, "the signal is received")
    kept.send(request("/v2/models/quick/infer", infer_body([2])))
    kept.read().refused("Server exiting", status=503)
    assert kept.is_closed
    with Wire(server.port) as late:
        late.send(request("/v2/health/live", method="GET"))
        late.read().refused("Server exiting", status=503)
    server.check_alive()

    gate.open()
    assert [wire.read().data() for wire in wires] == [[0.0], [1.0], [2.0]]
    assert all(wire.is_closed for wire in wires)
    assert server.wait() == 0
    assert "Traceback" not in server.log_text


def test_a_second_signal_ends_it_at_once(launch: Launch, repository: Path, gate: Gate) -> None:
    write_held(repository, gate)
    server = launch(repository)
    wires = in_flight(server, gate, 2)
    server.signal(signal.SIGTERM)
    eventually(lambda: "Signal (15) received." in server.log_text, "the first signal is received")
    server.signal(signal.SIGTERM)
    assert server.wait(5) == 1
    assert "received again" in server.log_text
    assert all(wire.is_closed for wire in wires)


def test_requests_that_do_not_finish_in_time_end_it_with_1(launch: Launch, repository: Path, gate: Gate) -> None:
    write_held(repository, gate)
    server = launch(repository, "--exit-timeout-secs=1")
    wires = in_flight(server, gate, 2)
    started = monotonic()
    server.signal(signal.SIGTERM)
    assert server.wait(10) == 1
    assert 1 <= monotonic() - started < 6
    assert "Timeout 1: Found 1 model versions that have in-flight inferences: held" in server.log_text
    assert all(wire.is_closed for wire in wires)


def test_idle_connections_do_not_hold_it_up(launch: Launch, repository: Path) -> None:
    server = launch(repository)
    wires = [Wire(server.port) for _ in range(20)]
    wires[0].send(b"POST /v2/models/x/infer HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nhalf a body")
    eventually(lambda: Asker(server.port).get("/v2/health/live").status == 200, "the connections are accepted")
    started = monotonic()
    server.signal(signal.SIGTERM)
    assert server.wait(10) == 0
    assert monotonic() - started < 3
    assert all(wire.is_closed for wire in wires)


def test_a_signal_during_a_slow_start_stops_the_start(launch: Launch, repository: Path, gate: Gate) -> None:
    write_held(repository, gate, at_load=True)
    server = launch(repository, wait=False)
    gate.wait_for_batches(1)
    server.signal(signal.SIGTERM)
    assert server.wait(10) == 0


def test_a_load_that_never_ends_does_not_outlast_the_exit_timeout(
    launch: Launch, repository: Path, gate: Gate, pool: ThreadPoolExecutor
) -> None:
    write_held(repository, gate, at_load=True)
    server = launch(repository, "--model-control-mode=explicit", "--exit-timeout-secs=1")
    with Wire(server.port) as wire:
        wire.send(request("/v2/repository/models/held/load", length=0))
        gate.wait_for_batches(1)
        server.signal(signal.SIGTERM)
        assert server.wait(10) == 1


@pytest.mark.parametrize("again", [False, True], ids=["one-signal", "two-signals"])
def test_nothing_is_left_in_the_temporary_folder(launch: Launch, repository: Path, tmp_path: Path, again: bool) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    write_identity(repository, "m", more="max_batch_size: 2")
    server = launch(
        repository, "--model-control-mode=explicit", "--load-model=*", environment={"TMPDIR": str(temporary)}
    )
    ask = Asker(server.port)
    assert ask.load("m", config='{"backend": "identity"}', **{"file:1/x": "AAAA"}).status in (200, 400)
    assert list(temporary.iterdir())
    server.signal(signal.SIGTERM)
    if again:
        server.signal(signal.SIGTERM)
    server.wait(10)
    assert not list(temporary.iterdir())


# Starting.


def test_bare_serve_starts_the_tensor_server_too(repository: Path, tmp_path: Path, plugins: Path) -> None:
    write_identity(repository, "m")
    server = TensorServer(repository, tmp_path / "log", plugins=plugins)
    server._command.remove("tensor")
    with server:
        assert Asker(server.port).infer("m", x("FP32", [1])).data() == [1.0]


def test_one_model_loads_slowly_while_the_others_serve(
    launch: Launch, repository: Path, gate: Gate, pool: ThreadPoolExecutor
) -> None:
    write_held(repository, gate, at_load=True)
    for number in range(5):
        write_identity(repository, f"quick{number}")
    server = launch(repository, wait=False)
    ask = Asker(server.port)
    gate.wait_for_batches(1)
    for number in range(5):
        eventually(lambda: ask.get(f"/v2/models/quick{number}/ready").status == 200, "ready")  # noqa: B023
        assert ask.infer(f"quick{number}", x("FP32", [number])).data() == [float(number)]
    assert ask.get("/v2/health/live").status == 200
    assert ask.get("/v2/health/ready").status == 400
    gate.open()
    eventually(lambda: ask.get("/v2/health/ready").status == 200, "all ready")


def test_without_strict_readiness_the_server_is_ready_when_it_has_started(launch: Launch, repository: Path) -> None:
    write_model(repository, "broken", None, model_onnx=b"no model")
    server = launch(repository, "--strict-readiness=false", "--exit-on-error=false")
    ask = Asker(server.port)
    eventually(lambda: ask.get("/v2/health/ready").status == 200, "ready")
    assert ask.get("/v2/models/broken/ready").status == 400


def test_an_address_of_the_new_protocol_is_served(launch: Launch, repository: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    write_identity(repository, "m")
    server = launch(repository, "--http-address=::1", wait=False)
    url = f"http://[::1]:{server.port}/v2/health/ready"

    def ready() -> bool:
        try:
            return httpx.get(url, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    eventually(ready, "ready on ::1")


# Not starting: always exit code 1, always with the reason.


@pytest.mark.parametrize(
    ("flags", "reasons"),
    [
        (["--no-such-flag"], ["--no-such-flag", "--help"]),
        (["--http-prt=8000"], ["--http-prt", "--http-port"]),
        (["--http-port=abc"], ["--http-port", "abc"]),
        (["--http-port=70000"], ["--http-port", "70000"]),
        (["--exit-on-error=perhaps"], ["--exit-on-error", "perhaps"]),
        (["--model-control-mode=manual"], ["--model-control-mode", "manual", "explicit"]),
        (["--load-model=m"], ["--load-model", "--model-control-mode=explicit"]),
        (["--model-control-mode=explicit", "--load-model=*", "--load-model=m"], ["'*'"]),
        (["stray"], ["stray"]),
        (["--http-address=192.0.2.1", "--insecure"], ["HTTPService", "192.0.2.1", "no such address"]),
        (["--model-control-mode=explicit", "--load-model=nobody"], ["'nobody'", "did you mean 'body'?"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith(("--", "stray")) and len(value) < 4 else None,
)
def test_a_command_line_that_cannot_be_meant_ends_it(
    launch: Launch, repository: Path, flags: list[str], reasons: list[str]
) -> None:
    write_identity(repository, "body")
    server = launch(repository, *flags, wait=False)
    assert server.wait(15) == 1
    missing = [reason for reason in reasons if reason not in server.log_text]
    assert not missing, server.log_text
    assert "Traceback" not in server.log_text


@pytest.mark.parametrize("kind", ["absent", "a file"])
def test_a_repository_that_is_no_folder_ends_it(launch: Launch, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "repository"
    if kind == "a file":
        path.write_text("models")
    server = launch(path, wait=False)
    assert server.wait(15) == 1
    assert str(path) in server.log_text
    assert "Traceback" not in server.log_text


def test_no_repository_at_all_ends_it(launch: Launch, tmp_path: Path, plugins: Path) -> None:
    server = TensorServer(tmp_path, tmp_path / "log", plugins=plugins)
    server._command = [word for word in server._command if "--model-repository" not in word]
    server.start()
    assert server.wait(15) == 1
    assert "--model-repository must be specified" in server.log_text


def test_a_model_that_cannot_be_loaded_ends_it_and_leaves_its_port(launch: Launch, repository: Path) -> None:
    write_identity(repository, "good")
    write_model(repository, "broken", None, model_onnx=b"no model")
    server = launch(repository, wait=False)
    assert server.wait(15) == 1
    assert "failed to load 'broken'" in server.log_text
    for port in (server.port, server.metrics_port):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))


def test_no_child_process_is_left(launch: Launch, repository: Path) -> None:
    write_identity(repository, "good")
    server = launch(repository)
    group = server.pid
    assert server.stop() == 0
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)
