"""``bident up`` with both real servers: either may die, and neither takes the other down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.ports import free_port

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


class Folder:
    """A folder in which commands are typed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OLLAMA_", "BIDENT_"))}
        doors = ("HTTP_PORT", "GRPC_PORT", "METRICS_PORT", "TEXT_PORT")
        self.ports = {door: free_port() for door in doors}
        ports = {f"BIDENT_{door}": str(port) for door, port in self.ports.items()}
        self._environment = {**kept, **ports, "BIDENT_TEXT_MODELS": str(path / "models"), "no_proxy": "*"}

    def bident(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "bident", *words],
            cwd=self.path,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def answers(self, door: str, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[door]}{path}", timeout=5) as answer:
                return answer.status == 200
        except (OSError, urllib.error.URLError):
            return False

    def child(self, which: str) -> psutil.Process:
        """The process of the server ``which``."""
        supervisor = psutil.Process(int((self.path / ".bident" / "serve.pid").read_text(encoding="utf-8")))
        return next(child for child in supervisor.children() if which in child.cmdline())


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    (tmp_path / "model_repository").mkdir()
    yield made
    made.bident("down")


def wait(condition: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.02)


def test_either_may_die(folder: Folder) -> None:
    up = folder.bident("up")
    assert up.returncode == 0, up.stderr
    assert f"http://127.0.0.1:{folder.ports['TEXT_PORT']}/v1 (OpenAI)" in up.stdout
    status = json.loads(folder.bident("status", "--json").stdout)
    assert status["ready"]
    assert status["text_url"] == f"http://127.0.0.1:{folder.ports['TEXT_PORT']}"
    listed = folder.bident("ls")
    assert "The repository is empty" in listed.stdout
    assert "There are no text models; fetch one with 'bident pull smollm2'." in listed.stdout

    tensor, text = folder.child("tensor"), folder.child("text")
    text.send_signal(signal.SIGKILL)
    wait(lambda: not text.is_running() or text.status() == psutil.STATUS_ZOMBIE, "dead")
    assert folder.answers("HTTP_PORT", "/v2/health/ready")
    wait(lambda: folder.answers("TEXT_PORT", "/"), "the text server is there again")
    assert folder.child("tensor").pid == tensor.pid

    text = folder.child("text")
    tensor.send_signal(signal.SIGKILL)
    wait(lambda: not folder.answers("HTTP_PORT", "/v2/health/live"), "dead")
    wait(lambda: folder.answers("HTTP_PORT", "/v2/health/ready"), "the tensor server is there again")
    assert folder.child("text").pid == text.pid
    assert folder.bident("status").returncode == 0

    assert folder.bident("down").returncode == 0
    logs = folder.bident("logs", "-n", "1000").stdout
    for said in ("tensor | I", "text   | I", "the text server ended (killed by SIGKILL)", "the tensor server ended"):
        assert said in logs
    assert "Traceback" not in logs


def test_a_port_that_is_taken_is_named_before_anything_starts(folder: Folder) -> None:
    import socket

    with socket.create_server(("127.0.0.1", folder.ports["TEXT_PORT"])):
        up = folder.bident("up")
    assert up.returncode == 1
    assert f"port {folder.ports['TEXT_PORT']} (text) is in use" in up.stderr
    assert not (folder.path / ".bident").exists()


def test_a_server_that_cannot_start_says_why(folder: Folder) -> None:
    """``serve`` in the foreground, with a port that another process holds."""
    import socket

    with socket.create_server(("127.0.0.1", folder.ports["TEXT_PORT"])):
        done = folder.bident("serve")
    assert done.returncode == 1
    assert "already in use" in done.stderr
    assert "the text server cannot start" in done.stderr
    assert not folder.answers("HTTP_PORT", "/v2/health/live")


def test_down_leaves_nothing_of_servers_that_do_not_listen(folder: Folder) -> None:
    flags = ("--exit-timeout-secs=0", "--text-exit-timeout-secs=0")
    assert folder.bident("up", *flags).returncode == 0
    servers = [folder.child("tensor"), folder.child("text")]
    psutil.Process(servers[0].ppid()).suspend()
    for server in servers:
        server.suspend()
    down = folder.bident("down")
    assert "Killed (pid" in down.stdout
    wait(lambda: not any(server.is_running() for server in servers), "gone")
