"""``bident up``, ``down``, ``status`` and ``logs`` with a stand-in for the server: a real process."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from bident.cli import background, ports
from bident.cli.record import STATE_DIR, Record
from tests.unit.cli.conftest import Bident

SERVER = """
import json, os, signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

flags = dict(word.split("=", 1) for word in sys.argv[1:])
mode = os.environ.get("FAKE_MODE", "")
print("flags", json.dumps(flags), flush=True)
if mode == "dies":
    sys.exit("cannot open the shutters")

class Door(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(400 if mode in ("unready", "failed") and "ready" in self.path else 200)
        self.end_headers()

    def do_POST(self):
        state = {"failed": "UNAVAILABLE", "unready": "LOADING"}.get(mode, "READY")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps([{"name": "m", "version": "1", "state": state, "reason": "no file"}]).encode())

def stop(*_):
    print("asked to stop", flush=True)
    if mode != "stubborn":
        os._exit(0)

signal.signal(signal.SIGTERM, stop)
HTTPServer(("127.0.0.1", int(flags["--http-port"])), Door).serve_forever()
"""


@pytest.fixture(autouse=True)
def no_server_is_left() -> Iterator[None]:
    yield
    record = Record.read(Path(STATE_DIR))
    if record and record.running():
        psutil.Process(record.pid).kill()


@pytest.fixture
def up(bident: Bident, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A folder with a repository, and what to call to start the stand-in there."""

    def command(flags: Sequence[str]) -> list[str]:
        return [sys.executable, "-c", SERVER, *flags]

    monkeypatch.setattr(background, "serve_command", command)
    Path("model_repository").mkdir()
    return ["up", "--http-port=0", "--metrics-port=0"]


def flags() -> dict[str, str]:
    line = Path(STATE_DIR, "serve.log").read_text(encoding="utf-8").splitlines()[0]
    parsed: dict[str, str] = json.loads(line.removeprefix("flags "))
    return parsed


def test_up_status_logs_down(bident: Bident, up: list[str]) -> None:
    result = bident(*up, "--log-verbose=1")
    assert result.code == 0, result.err
    record = Record.read(Path(STATE_DIR))
    assert record is not None
    assert Path(STATE_DIR, "serve.pid").read_text(encoding="utf-8") == f"{record.pid}\n"
    assert record.url in result.out
    assert "host.docker.internal" in result.out
    assert flags()["--model-repository"] == "model_repository"
    assert flags()["--log-verbose"] == "1"
    if sys.platform != "win32":
        assert os.getsid(record.pid) == record.pid

    again = bident(*up)
    assert again.code == 0
    assert f"Already up (pid {record.pid})" in again.out
    state = bident("status", "--json")
    assert state.code == 0
    assert json.loads(state.out) | {"running": True, "ready": True, "pid": record.pid} == json.loads(state.out)
    assert "1 of 1 models loaded" in bident("status").out

    down = bident("down")
    assert down.code == 0
    assert f"Stopped (pid {record.pid})" in down.out
    assert not psutil.pid_exists(record.pid) or psutil.Process(record.pid).status() == psutil.STATUS_ZOMBIE
    assert "asked to stop" in bident("logs").out
    assert bident("logs", "-n", 1).out == "asked to stop\n"
    assert bident("status").code == 1
    assert "Nothing to stop" in bident("down").out


def test_a_server_that_dies_shows_its_last_words(
    bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MODE", "dies")
    result = bident(*up)
    assert result.code == 1
    assert "the server ended before it was ready" in result.err
    assert "cannot open the shutters" in result.err
    assert bident("status").code == 1


def test_a_server_that_is_late_is_left_running(bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "unready")
    result = bident(*up, "--wait=0.5")
    assert result.code == 1
    assert "is not ready after" in result.err
    assert json.loads(bident("status", "--json").out)["running"]
    assert bident("down").code == 0


def test_models_that_failed_are_named(bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "failed")
    result = bident(*up)
    assert result.code == 1
    assert "m 1: no file" in result.err
    assert bident("down").code == 0


def test_down_insists_when_asking_is_not_enough(bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "stubborn")
    monkeypatch.setattr(background, "_GRACE_SECONDS", 0.3)
    assert bident(*up, "--exit-timeout-secs=0").code == 0
    result = bident("down")
    assert result.code == 0
    assert "Killed (pid" in result.out


def test_a_record_of_another_process_is_not_believed(bident: Bident, up: list[str]) -> None:
    Path(STATE_DIR).mkdir()
    Record(os.getpid(), 1.0, "http://127.0.0.1:9", "", "127.0.0.1", "none", 30, "log").write(Path(STATE_DIR))
    assert bident("status").code == 1
    assert "Nothing to stop" in bident("down").out


def test_every_port_that_is_taken_is_named_with_its_holder(bident: Bident, up: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as http, socket.create_server(("127.0.0.1", 0)) as metrics:
        first, second = http.getsockname()[1], metrics.getsockname()[1]
        result = bident("up", f"--http-port={first}", f"--metrics-port={second}")
    assert result.code == 1
    assert f"port {first} (HTTP) is in use by " in result.err
    assert f"port {second} (metrics) is in use by " in result.err
    assert f"(pid {os.getpid()})" in result.err
    assert not Path(STATE_DIR).exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--repo", "nowhere"], "there is no model repository at nowhere; make one with 'bident zoo build"),
        (["--htp-port=1"], "did you mean '--http-port'?"),
        (["--allow-http=false"], "'bident up' waits on the HTTP door"),
    ],
)
def test_what_cannot_start_is_said_before_starting(
    bident: Bident, up: list[str], words: list[str], message: str
) -> None:
    result = bident("up", *words)
    assert result.code == 1
    assert message in result.err
    assert not Path(STATE_DIR).exists()


def test_repositories_come_from_flags_environment_or_file(
    bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("elsewhere").mkdir()
    monkeypatch.setenv("BIDENT_MODEL_REPOSITORY", "elsewhere")
    assert bident(*up).code == 0
    assert "--model-repository" not in flags()
    assert bident("down").code == 0
    assert bident(*up, "--repo", "model_repository").code == 0
    assert flags()["--model-repository"] == "model_repository"
    assert bident("down").code == 0


def test_no_log_yet(bident: Bident) -> None:
    result = bident("logs")
    assert result.code == 1
    assert "'bident up' starts a server that writes one" in result.err


def test_addresses() -> None:
    assert [ports.local(address) for address in ("0.0.0.0", "::", "::1", "10.0.0.1")] == [
        "127.0.0.1",
        "[::1]",
        "[::1]",
        "10.0.0.1",
    ]
    assert ports.is_loopback("127.1.2.3")
    assert not ports.is_loopback("0.0.0.0")
    assert not ports.lan_address().startswith("127.")
    assert not ports.taken("127.0.0.1", ports.free_port("127.0.0.1"))
