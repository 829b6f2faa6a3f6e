"""``bident up``, ``down``, ``status`` and ``logs`` with a stand-in for the server: a real process."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from bident.cli import background, ports, process
from bident.cli.record import STATE_DIR, Record
from tests.unit.cli.conftest import Bident

SERVER = """
import json, os, signal, sys, threading, time
from http.server import BaseHTTPRequestHandler, HTTPServer

def end_with_the_test(parent=os.getppid(), last=time.monotonic() + 60):
    while os.getppid() == parent and time.monotonic() < last:
        time.sleep(0.1)
    os._exit(9)

threading.Thread(target=end_with_the_test, daemon=True).start()
flags = dict(word.split("=", 1) for word in sys.argv[1:])
mode = os.environ.get("FAKE_MODE", "")
print("flags", json.dumps(flags), flush=True)
if mode == "dies":
    sys.exit("cannot open the shutters")
if mode == "refuses":
    for message in ("failed to load 'bad': it is \\"damaged\\"", "failed to load all models"):
        print("E1130 14:59:29.225140 %d app.py:142]" % os.getpid(), json.dumps(message), file=sys.stderr)
    print("I1130 14:59:29.225140 %d app.py:142]" % os.getpid(), "\\n".join(str(line) for line in range(50)))
    sys.exit(1)
if "--log-file" in flags:
    with open(flags["--log-file"], "a") as log:
        log.write("a line of the log file\\n")

class Door(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(400 if mode in ("unready", "failed") and "ready" in self.path else 200)
        self.end_headers()

    def do_POST(self):
        state = {"failed": "UNAVAILABLE", "unready": "LOADING"}.get(mode, "READY")
        self.send_response(200)
        self.end_headers()
        reason = "loading since 2026-11-30T16:03:12Z" if state == "LOADING" else "no file"
        self.wfile.write(json.dumps([{"name": "m", "version": "1", "state": state, "reason": reason}]).encode())

def stop(*_):
    print("asked to stop", flush=True)
    for left in (2, 1):
        busy = "Timeout %d: Found 2 model versions that have in-flight inferences: slow, slower" % left
        busy = json.dumps(busy) if left == 2 else busy  # messages may come unescaped
        print("I1130 14:59:29.225140 %d app.py:142] %s" % (os.getpid(), busy), flush=True)
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
    lines = Path(STATE_DIR, "serve.log").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith("flags "))
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
    assert flags()["--log-verbose"] == "1"
    assert flags()["--exit-on-error"] == "false"
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
    assert bident("logs", "-n", 3).out.startswith("asked to stop\n")
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
    assert re.search(r"is not ready after 0 s \(still loading: m 1 \(for \d+ (s|min|h)\)\); see", result.err)
    state = bident("status")
    assert state.code == 1
    assert "not ready, 0 of 1 models loaded" in state.out
    assert re.search(r"^Loading: m 1 \(for ", state.err, re.MULTILINE)
    assert json.loads(bident("status", "--json").out)["loading"][0]["name"] == "m"
    assert json.loads(bident("status", "--json").out)["running"]
    assert bident("down").code == 0


def test_up_names_what_is_loading_as_long_as_it_does(
    bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setenv("FAKE_MODE", "unready")
    monkeypatch.setattr("rich.status.Status.update", lambda self, status: shown.append(status))
    assert bident(*up, "--wait=0.5").code == 1
    pid = json.loads(bident("status", "--json").out)["pid"]
    assert re.fullmatch(rf"Starting the server \(pid {pid}\), loading m 1 \(for \d+ (s|min|h)\)", shown[-1])
    assert bident("down").code == 0


def test_models_that_failed_are_named(bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "failed")
    result = bident(*up)
    assert result.code == 1
    assert "m 1: no file" in result.err
    assert "mend its folder, then 'bident restart'" in result.err
    state = bident("status")
    assert state.code == 1
    assert "not ready" in state.out
    assert "m 1: no file" in state.err
    assert json.loads(bident("status", "--json").out)["failed"][0]["reason"] == "no file"
    assert bident("down").code == 0
    # What helps depends on the control mode.
    polling = bident(*up, "--model-control-mode=poll")
    assert "mend its folder, it is picked up by itself" in polling.err
    assert bident("down").code == 0


def test_the_reasons_are_shown_however_much_was_logged_after_them(
    bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MODE", "refuses")
    result = bident(*up, "--exit-on-error=true")
    assert result.code == 1
    assert result.err.splitlines()[-2:] == ["  failed to load 'bad': it is \"damaged\"", "  failed to load all models"]
    assert flags()["--exit-on-error"] == "true"


def test_exit_on_error_is_the_users(bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDENT_EXIT_ON_ERROR", "true")
    assert bident(*up).code == 0
    assert flags()["--exit-on-error"] == "true"
    assert bident("down").code == 0


def test_a_crash_is_told_from_a_stop(bident: Bident, up: list[str]) -> None:
    assert bident(*up).code == 0
    record = Record.read(Path(STATE_DIR))
    assert record is not None
    psutil.Process(record.pid).kill()
    psutil.wait_procs([psutil.Process(record.pid)] if psutil.pid_exists(record.pid) else [], timeout=5)
    state = bident("status")
    assert state.code == 1
    assert "it ended unexpectedly, see 'bident logs'" in state.out
    assert json.loads(bident("status", "--json").out)["ended_unexpectedly"]
    again = bident(*up)
    assert again.code == 0
    assert f"(pid {record.pid}) ended unexpectedly" in again.err
    assert bident("down").code == 0
    assert bident("status").out == "Down. Start it with 'bident up'.\n"


def test_flags_that_come_too_late_are_named_and_restart_applies_them(bident: Bident, up: list[str]) -> None:
    Path("second").mkdir()
    assert bident(*up, "--log-verbose=1").code == 0
    first = Record.read(Path(STATE_DIR))
    assert first is not None
    assert "ignored" not in bident(*up).err
    late = bident(*up, "--log-verbose", "2", "--id=x").err
    assert "It runs without --log-verbose=2 --id=x, ignored here" in late
    assert "'bident restart --http-port=0 --metrics-port=0 --log-verbose=2 --id=x' applies" in late

    assert bident("restart").code == 0
    second = Record.read(Path(STATE_DIR))
    assert second is not None
    assert second.pid != first.pid
    assert not first.running()
    assert flags()["--log-verbose"] == "1"

    # What is wrong is said before anything is stopped.
    assert bident("restart", "--htp-port=1").code == 2
    assert second.running()
    result = bident("restart", *up[1:], "--repo", "model_repository", "--repo", "second")
    assert result.code == 0, result.err
    third = Record.read(Path(STATE_DIR))
    assert third is not None
    assert third.flags[:2] == ("--model-repository=model_repository", "--model-repository=second")
    assert "--log-verbose" not in flags()
    assert bident("down").code == 0


def test_restart_keeps_what_the_environment_said(
    bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, metrics, other = (str(ports.free_port("127.0.0.1")) for _ in range(3))
    monkeypatch.setenv("BIDENT_HTTP_PORT", port)
    monkeypatch.setenv("BIDENT_METRICS_PORT", metrics)
    monkeypatch.setenv("BIDENT_LOG_VERBOSE", "1")
    assert bident("up", "--id=x").code == 0
    monkeypatch.delenv("BIDENT_HTTP_PORT")
    monkeypatch.delenv("BIDENT_METRICS_PORT")
    monkeypatch.delenv("BIDENT_LOG_VERBOSE")

    kept = bident("restart")
    assert kept.code == 0, kept.err
    assert "another one than before" not in kept.err
    record = Record.read(Path(STATE_DIR))
    assert record is not None
    assert (record.url, record.metrics_url) == (f"http://127.0.0.1:{port}", f"http://127.0.0.1:{metrics}")
    assert psutil.Process(record.pid).environ()["BIDENT_LOG_VERBOSE"] == "1"
    assert flags()["--id"] == "x"

    # What is given now wins, and a new address is said.
    monkeypatch.setenv("BIDENT_HTTP_PORT", other)
    ignored = bident("up").err
    assert f"It runs without BIDENT_HTTP_PORT={other}, ignored here: 'bident restart' applies that." in ignored
    moved = bident("restart", "--id=y")
    assert flags()["--http-port"] == other
    assert flags()["--metrics-port"] == metrics
    assert f"http://127.0.0.1:{other}, and it was http://127.0.0.1:{port} (BIDENT_HTTP_PORT={port})" in moved.err
    assert bident("restart", f"--http-port={port}").code == 0
    assert flags()["--http-port"] == port
    # The environment says the same as before: the flag goes before it.
    assert bident("restart").code == 0
    assert flags()["--http-port"] == port
    # It says something new now, which is meant more than a flag of an earlier day.
    monkeypatch.setenv("BIDENT_HTTP_PORT", str(ports.free_port("127.0.0.1")))
    assert bident("restart").code == 0
    assert flags()["--http-port"] == os.environ["BIDENT_HTTP_PORT"]
    assert bident("down").code == 0


def test_up_after_down_says_that_the_address_was_another_one(
    bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = str(ports.free_port("127.0.0.1"))
    monkeypatch.setenv("BIDENT_HTTP_PORT", port)
    assert bident("up", "--metrics-port=0").code == 0
    assert bident("down").code == 0
    monkeypatch.delenv("BIDENT_HTTP_PORT")
    assert f"it was http://127.0.0.1:{port} (BIDENT_HTTP_PORT={port})" in bident(*up).err
    assert bident("down").code == 0


def test_a_models_folder_is_no_repository(bident: Bident, up: list[str]) -> None:
    Path("model_repository", "shout", "1").mkdir(parents=True)
    Path("model_repository", "shout", "1", "model.py").touch()
    result = bident(*up, "--repo", "model_repository/shout")
    assert result.code == 1
    assert "this looks like a model folder, not a repository: give its parent" in result.err
    assert str(Path("model_repository").absolute()) in result.err
    assert not Path(STATE_DIR).exists()


def test_logs_follow_the_log_file_and_the_last_log_is_kept(bident: Bident, up: list[str]) -> None:
    assert bident(*up).code == 0
    assert bident("down").code == 0
    before = Path(STATE_DIR, "serve.log").read_text(encoding="utf-8")
    assert bident(*up, "--log-file=elsewhere.log").code == 0
    assert Path(STATE_DIR, "serve.log.1").read_text(encoding="utf-8") == before
    assert bident("logs").out == "a line of the log file\n"
    assert bident("down").code == 0
    # The stopped server's notes are gone; its output still says where it wrote.
    assert str(Path("elsewhere.log").resolve()) in bident("logs").out


def test_down_insists_when_asking_is_not_enough(bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "stubborn")
    monkeypatch.setattr(background, "_GRACE_SECONDS", 0.3)
    assert bident(*up, "--exit-timeout-secs=0").code == 0
    result = bident("down")
    assert result.code == 0
    assert "Killed (pid" in result.out
    # Said once, though the server says it every second.
    assert result.err.count("requests in flight are finished first: slow, slower (at most 0 s") == 1


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
    ("words", "code", "message"),
    [
        (["--repo", "nowhere"], 1, "there is no model repository at nowhere; make one with 'bident zoo build"),
        (["--htp-port=1"], 2, "did you mean '--http-port'?"),
        (["--allow-http=false"], 1, "'bident up' waits on the HTTP door"),
    ],
)
def test_what_cannot_start_is_said_before_starting(
    bident: Bident, up: list[str], words: list[str], code: int, message: str
) -> None:
    result = bident("up", *words)
    assert result.code == code
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


@pytest.mark.skipif(sys.platform == "win32", reason="there the stand-in ends by its own clock")
def test_the_stand_in_ends_with_whoever_started_it() -> None:
    """An aborted run of these tests leaves nothing behind."""
    starter = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL).pid)"
    starter += "; import time; time.sleep(0.5)"
    port = ports.free_port("127.0.0.1")
    command = [sys.executable, "-c", starter, sys.executable, "-c", SERVER, f"--http-port={port}"]
    pid = int(subprocess.run(command, capture_output=True, check=True, timeout=20).stdout)
    deadline = time.monotonic() + 10
    while process.alive(pid, process.born(pid)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_addresses() -> None:
    assert [ports.local(address) for address in ("0.0.0.0", "::", "::1", "10.0.0.1")] == [
        "127.0.0.1",
        "[::1]",
        "[::1]",
        "10.0.0.1",
    ]
    assert not ports.lan_address().startswith("127.")
    assert not ports.taken("127.0.0.1", ports.free_port("127.0.0.1"))
