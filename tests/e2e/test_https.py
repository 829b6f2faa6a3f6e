"""HTTPS: what a client over TLS gets, and what everybody else is told."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from model_folders import write_identity
from serving import Launch, TensorServer, eventually
from wire_http import infer_body, request

from bident.client import Client, Credentials
from bident.errors import ServeError
from certificates import AUTHORITY, certificate, key

INFER = "/v2/models/same/infer"
TLS = ("--http-use-ssl=true", f"--http-server-cert={certificate('server')}", f"--http-server-key={key('server')}")


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=AUTHORITY)


def get(server: TensorServer, path: str, context: ssl.SSLContext | None = None, port: int = 0) -> httpx.Response:
    url = f"https://127.0.0.1:{port or server.port}{path}"
    with httpx.Client(verify=context or trusting(), trust_env=False) as client:
        return client.get(url)


def is_ready(server: TensorServer, context: ssl.SSLContext | None = None) -> bool:
    server.check_alive()
    try:
        return get(server, "/v2/health/ready", context).status_code == 200
    except httpx.TransportError:
        return False


Serve = Callable[..., TensorServer]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("repository")
    write_identity(made, "same")
    return made


@pytest.fixture
def serve(repository: Path, launch: Launch) -> Serve:
    """Starts a server over TLS of the test's own, ready."""

    def start(*flags: str, context: ssl.SSLContext | None = None) -> TensorServer:
        server = launch(repository, *(flags or TLS), wait=False)
        eventually(lambda: is_ready(server, context), "ready over TLS")
        return server

    return start


@pytest.fixture(scope="module")
def server(repository: Path, plugins: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorServer]:
    """One for all tests that only ask."""
    made = TensorServer(repository, tmp_path_factory.mktemp("log") / "server.log", *TLS, plugins=plugins)
    made.start()
    try:
        eventually(lambda: is_ready(made), "ready over TLS")
        yield made
    finally:
        made.stop()


@pytest.fixture
def wire(server: TensorServer) -> Iterator[ssl.SSLSocket]:
    """A connection over TLS."""
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain,
        trusting().wrap_socket(plain, server_hostname="localhost") as made,
    ):
        yield made


def read_all(wire: socket.socket) -> bytes:
    received = b""
    while piece := wire.recv(1 << 16):
        received += piece
    return received


def test_inference_and_metrics_go_over_tls(server: TensorServer) -> None:
    with httpx.Client(verify=trusting(), trust_env=False) as client:
        answer = client.post(f"https://127.0.0.1:{server.port}{INFER}", content=infer_body([1.5, 2.5]))
        assert answer.json()["outputs"][0]["data"] == [1.5, 2.5]
    page = get(server, "/metrics", port=server.metrics_port)
    assert 'nv_inference_request_success{model="same",version="1"}' in page.text


def test_large_tensors_arrive_whole_in_both_directions(server: TensorServer) -> None:
    numbers = [float(number) for number in range(200_000)]
    with httpx.Client(verify=trusting(), trust_env=False, timeout=30) as client:
        answer = client.post(f"https://127.0.0.1:{server.port}{INFER}", content=infer_body(numbers))
    assert answer.status_code == 200, answer.text
    assert answer.json()["outputs"][0]["data"] == numbers


def test_pipelined_requests_and_the_end_of_a_connection(wire: ssl.SSLSocket) -> None:
    wire.sendall(request(INFER, infer_body([1])) + request(INFER, infer_body([2]), "Connection: close"))
    received = read_all(wire)
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert received.rstrip().endswith(b'"data":[2.0]}]}')


def test_a_request_that_is_refused_early_is_answered_before_the_connection_ends(wire: ssl.SSLSocket) -> None:
    wire.sendall(request(INFER, b"{" * 100_000, length=1 << 40))
    assert b"exceeds the maximum" in read_all(wire)


def test_plain_http_gets_an_answer_that_says_https(server: TensorServer) -> None:
    answer = httpx.get(f"http://127.0.0.1:{server.port}/v2", trust_env=False)
    assert answer.status_code == 400
    assert "use https://" in answer.json()["error"]
    eventually(lambda: "it speaks no TLS" in server.log_text, "a line in the log")
    with pytest.raises(ServeError, match="use https://"):
        Client(f"http://127.0.0.1:{server.port}").index()
    assert is_ready(server)


def test_garbage_after_a_first_byte_of_tls_ends_the_connection_and_nothing_else(server: TensorServer) -> None:
    for garbage in (b"\x16", b"\x16\x03\x01\xff\xff" + b"\0" * 100, b"\x16" * 70_000, b"\0", b"\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
            plain.sendall(garbage)
            plain.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                read_all(plain)
    assert is_ready(server)
    assert "Traceback" not in server.log_text


def test_clients_that_never_begin_the_handshake_are_let_go(serve: Serve) -> None:
    server = serve(*TLS, "--http-header-timeout-secs=0.3")
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(20)]
    half = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    half.sendall(b"\x16\x03\x01\x02\x00\x01")
    for waiting in [*silent, half]:
        with waiting, contextlib.suppress(ConnectionResetError):
            assert waiting.recv(1) == b""
    assert is_ready(server)
    eventually(lambda: "it sent nothing for 0.3 s" in server.log_text, "a line in the log")
    assert server.log_text.count("no TLS connection") < 10


def test_a_client_certificate_is_wanted_where_it_says_so(serve: Serve) -> None:
    known = trusting()
    known.load_cert_chain(certificate("client"), key("client"))
    flags = (f"--http-root-cert={AUTHORITY}", "--http-use-ssl-mutual=true", *TLS[1:])
    server = serve(*flags, context=known)
    with pytest.raises(httpx.TransportError):
        get(server, "/v2/health/live")
    assert get(server, "/metrics", known, server.metrics_port).status_code == 200


def test_a_server_that_cannot_use_its_certificate_does_not_start(launch: Launch, tmp_path: Path) -> None:
    broken = launch(
        tmp_path,
        *TLS[:1],
        f"--http-server-cert={certificate('expired')}",
        f"--http-server-key={key('expired')}",
        wait=False,
    )
    assert broken.wait() == 1
    assert "--http-use-ssl: the certificate" in broken.log_text
    assert "has expired" in broken.log_text
    assert "Traceback" not in broken.log_text


def test_an_idle_client_does_not_hold_up_a_server_that_is_told_to_stop(serve: Serve) -> None:
    server = serve()
    with httpx.Client(verify=trusting(), trust_env=False) as client:
        assert client.get(f"https://127.0.0.1:{server.port}/v2/health/live").status_code == 200
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_an_answer_that_the_client_has_not_taken_yet_is_not_lost_when_the_server_stops(serve: Serve) -> None:
    server = serve()
    numbers = [float(number) for number in range(1_500_000)]
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        plain.settimeout(20)
        plain.connect(("127.0.0.1", server.port))
        with trusting().wrap_socket(plain, server_hostname="localhost") as wire:
            wire.sendall(request(INFER, infer_body(numbers)))
            head = wire.recv(1000)
            server.signal(signal.SIGTERM)
            eventually(lambda: "Signal (15) received" in server.log_text, "the signal has come")
            answer = head + read_all(wire)
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["outputs"][0]["data"] == numbers
    assert server.wait() == 0


def test_the_command_line_client_speaks_https(server: TensorServer) -> None:
    url = f"https://127.0.0.1:{server.port}"
    assert Client(url, credentials=Credentials(ca=AUTHORITY)).index()[0]["name"] == "same"
    with pytest.raises(ServeError, match="name the authority that signed it with --ca"):
        Client(url, credentials=Credentials()).index()
    with pytest.raises(ServeError, match="cannot be used as a PEM certificate"):
        Client(url, credentials=Credentials(ca=key("server")))


def test_https_to_a_plain_port_is_told_so(launch: Launch, tmp_path: Path) -> None:
    plain = launch(tmp_path)
    with pytest.raises(ServeError, match="it speaks no TLS; use http://"):
        Client(f"https://127.0.0.1:{plain.port}", credentials=Credentials(ca=AUTHORITY)).index()
    with socket.create_connection(("127.0.0.1", plain.port), timeout=10) as wire:
        wire.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        received = read_all(wire)
    assert "this port speaks plain HTTP" in json.loads(received.partition(b"\r\n\r\n")[2])["error"]
