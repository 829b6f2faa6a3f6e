"""Ports with somebody on them, open doors, proxies, names, clocks."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from bident.doctor.check import Weight
from bident.doctor.machine.exposure import Exposure, OllamaHost
from bident.doctor.machine.network import Clock, LocalhostName, LoopbackInContainer, Proxies
from bident.doctor.machine.ports import PortsTaken, RealOllama
from bident.doctor.machine.surroundings import Surroundings
from bident.local import ports, process
from bident.local.record import Record
from tests.unit.doctor.found import findings, only

LISTEN = """
import socket, sys
taken = socket.socket()
taken.bind(("127.0.0.1", 0))
taken.listen()
print(taken.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def _listener(*words: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Another process that has a port, and the port; it ends with the block."""
    command = [sys.executable, "-c", LISTEN, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        yield int(other.stdout.readline()), other
        other.communicate("")


def _here(tmp_path: Path, port: int, **more: str) -> Surroundings:
    """Settings in which the HTTP door is the only one."""
    closed = {"BIDENT_ALLOW_GRPC": "false", "BIDENT_ALLOW_METRICS": "false", "BIDENT_TEXT_PORT": "0"}
    return Surroundings({"BIDENT_HTTP_PORT": str(port), **closed, **more}, tmp_path)


def test_a_taken_port_and_who_has_it(tmp_path: Path) -> None:
    with _listener() as (port, other):
        found = only(PortsTaken(_here(tmp_path, port)))
        assert found.where == f"port {port} (HTTP)"
        assert f"(pid {other.pid})" in found.seen
        assert f"kill {other.pid}" in found.cure
        offered = int(found.cure.partition("BIDENT_HTTP_PORT=")[2].split()[0])
        assert offered > port
        assert not ports.taken("127.0.0.1", offered)
    assert findings(PortsTaken(_here(tmp_path, port))) == []


def test_another_folders_server(tmp_path: Path) -> None:
    with _listener("bident", "serve") as (port, _):
        assert "'bident down' in its folder" in only(PortsTaken(_here(tmp_path, port))).cure


def test_the_server_of_this_folder_has_its_own_ports(tmp_path: Path) -> None:
    with _listener() as (port, other):
        (tmp_path / ".bident").mkdir()
        born = process.born(other.pid)
        Record(other.pid, born, f"http://127.0.0.1:{port}", "", "127.0.0.1", "none", 30, "").write(tmp_path / ".bident")
        assert findings(PortsTaken(_here(tmp_path, port))) == []


class _Ollama(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"version": "0.12.0"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def ollama(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """An Ollama, as far as it is asked, on the port that is taken to be Ollama's."""
    with HTTPServer(("127.0.0.1", 0), _Ollama) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr("bident.doctor.machine.ports.DEFAULT_PORT", server.server_port)
        yield server.server_port
        server.shutdown()


def test_an_ollama_is_no_conflict(tmp_path: Path, ollama: int) -> None:
    here = Surroundings({"BIDENT_HTTP_PORT": "0", "BIDENT_GRPC_PORT": "0", "BIDENT_METRICS_PORT": "0",
                         "BIDENT_TEXT_PORT": str(ollama)}, tmp_path)  # fmt: skip
    assert findings(PortsTaken(here)) == []
    found = only(RealOllama(here))
    assert (found.weight, found.where) == (Weight.NOTE, f"port {ollama}")


def test_open_doors(tmp_path: Path) -> None:
    environ = {"BIDENT_HTTP_ADDRESS": "0.0.0.0", "BIDENT_INSECURE": "true"}
    assert only(Exposure(Surroundings(environ, tmp_path))).where == "http door on 0.0.0.0"
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    assert findings(Exposure(Surroundings({**environ, "BIDENT_API_KEY_FILE": str(keys)}, tmp_path))) == []
    assert findings(Exposure(Surroundings({"BIDENT_HTTP_ADDRESS": "0.0.0.0"}, tmp_path))) == []


def test_a_text_door_that_asks_for_certificates_is_not_open(tmp_path: Path) -> None:
    files = {f"BIDENT_TEXT_{name}": str(tmp_path) for name in ("SERVER_CERT", "SERVER_KEY", "ROOT_CERT")}
    environ = {"OLLAMA_HOST": "0.0.0.0"}
    insecure = Surroundings({**environ, "BIDENT_TEXT_INSECURE": "true"}, tmp_path)
    assert only(Exposure(insecure)).where == "text door on 0.0.0.0"
    with_certificates = Surroundings({**environ, **files, "BIDENT_TEXT_USE_SSL_MUTUAL": "true"}, tmp_path)
    assert findings(Exposure(with_certificates)) == []
    assert findings(OllamaHost(with_certificates)) == []


def test_ollamas_address_is_the_text_servers(tmp_path: Path) -> None:
    found = only(OllamaHost(Surroundings({"OLLAMA_HOST": "0.0.0.0:11434"}, tmp_path)))
    assert "BIDENT_TEXT_HOST=127.0.0.1" in found.cure
    cured = {"OLLAMA_HOST": "0.0.0.0:11434", "BIDENT_TEXT_HOST": "127.0.0.1"}
    assert findings(OllamaHost(Surroundings(cured, tmp_path))) == []
    assert findings(OllamaHost(Surroundings({"OLLAMA_HOST": "127.0.0.1"}, tmp_path))) == []


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"HTTP_PROXY": "http://proxy:3128"}, "127.0.0.1 or localhost"),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "localhost"}, "name 127.0.0.1"),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "localhost,127.0.0.1"}, ""),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "*"}, ""),
        ({"NO_PROXY": "x"}, ""),
    ],
)
def test_proxies(environ: dict[str, str], named: str) -> None:
    found = findings(Proxies(Surroundings(environ)))
    assert [named in each.seen for each in found] == ([True] if named else [])


def _unknown(_: str) -> list[str]:
    raise OSError("Name or service not known")


def test_localhost_elsewhere() -> None:
    assert "::1" in only(LocalhostName(resolve=lambda _: ["::1", "::1"])).seen
    assert "not known" in only(LocalhostName(resolve=_unknown)).seen
    assert findings(LocalhostName(resolve=lambda _: ["::1", "127.0.0.1"])) == []


def test_a_clock_that_is_behind() -> None:
    found = only(Clock(now=lambda: 0.0))
    assert found.where == "1970-01-01 00:00"
    assert findings(Clock()) == []


def test_loopback_in_a_container(tmp_path: Path) -> None:
    check = LoopbackInContainer(Surroundings({}, tmp_path), tmp_path)
    assert findings(check) == []
    (tmp_path / ".dockerenv").touch()
    assert "tensor and the text server" in only(check).seen
    outside = {"BIDENT_HTTP_ADDRESS": "0.0.0.0", "BIDENT_TEXT_HOST": "0.0.0.0"}
    assert findings(LoopbackInContainer(Surroundings(outside, tmp_path), tmp_path)) == []
