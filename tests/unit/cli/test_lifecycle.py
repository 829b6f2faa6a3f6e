"""``bident up``, ``down``, ``status`` and ``logs`` with a stand-in for the server: a real process."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bident.cli import background
from bident.local import ports, process
from bident.local.record import STATE_DIR, Record
from tests.unit.cli.conftest import Bident
from tests.unit.cli.stand_in import SERVER, flags


def test_up_status_logs_down(bident: Bident, up: list[str]) -> None:
    result = bident(*up, "--log-verbose=1")
    assert result.code == 0, result.err
    record = Record.read(Path(STATE_DIR))
    assert record is not None
    assert Path(STATE_DIR, "serve.pid").read_text(encoding="utf-8") == f"{record.pid}\n"
    assert record.url in result.out
    assert "host.docker.internal" in result.out
    assert record.grpc == f"127.0.0.1:{flags()['--grpc-port']}"
    assert record.grpc in result.out
    assert flags()["--log-verbose"] == "1"
    assert flags()["--exit-on-error"] == "false"
    if sys.platform != "win32":
        assert os.getsid(record.pid) == record.pid

    again = bident(*up)
    assert again.code == 0
    assert f"Already up (pid {record.pid})" in again.out
    state = bident("status", "--json")
    assert state.code == 0
    expected = {"running": True, "ready": True, "pid": record.pid, "grpc": record.grpc}
    assert json.loads(state.out) | expected == json.loads(state.out)
    assert "1 of 1 models loaded" in bident("status").out

    down = bident("down")
    assert down.code == 0
    assert f"Stopped (pid {record.pid})" in down.out
    assert not psutil.pid_exists(record.pid) or psutil.Process(record.pid).status() == psutil.STATUS_ZOMBIE
    assert "asked to stop" in bident("logs").out
    assert bident("logs", "-n", 3).out.startswith("asked to stop\n")
    assert bident("status").code == 1
    assert "Nothing to stop" in bident("down").out


def test_commands_know_what_the_restricted_apis_of_their_own_server_want(
    bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    restricted = ("--http-restricted-api=health,metadata:who=me", "--http-restricted-api=model-repository:admin=x=y")
    assert bident(*up, *restricted).code == 0
    record = Record.read(Path(STATE_DIR))
    assert record is not None
    assert record.client().credentials.headers == {"who": "me", "admin": "x=y"}
    if sys.platform != "win32":
        assert Path(STATE_DIR, "serve.json").stat().st_mode & 0o077 == 0
    monkeypatch.setenv("BIDENT_HEADERS", "admin: other\nmore: 1")
    assert record.client().credentials.headers == {"who": "me", "admin": "other", "more": "1"}
    assert bident("down").code == 0


def test_the_address_of_grpc_says_what_it_speaks(bident: Bident, up: list[str]) -> None:
    over_tls = bident(*up, "--grpc-use-ssl=true", "--grpc-server-cert=cert.pem", "--grpc-server-key=key.pem")
    assert f"127.0.0.1:{flags()['--grpc-port']} over TLS" in over_tls.out
    without = bident("restart", "--allow-grpc=false", "--grpc-use-ssl=false")
    assert without.code == 0, without.err
    assert "gRPC" not in without.out
    assert bident("down").code == 0


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


@pytest.mark.parametrize(("control", "code"), [("none", 1), ("explicit", 0)])
def test_models_that_a_real_triton_passed_over_are_named(
    bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch, control: str, code: int
) -> None:
    monkeypatch.setenv("FAKE_MODE", "passed over")
    result = bident(*up, f"--model-control-mode={control}")
    assert result.code == code, result.err
    assert ("  m: its folder could not be read as a model's; 'bident logs' says why" in result.err) is bool(code)
    assert bident("down").code == 0


def test_models_that_failed_are_named(bident: Bident, up: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "failed")
    result = bident(*up)
    assert result.code == 1
    assert "m 1: no file" in result.err
    assert "'bident doctor' says more about them; to cure a model: mend its folder, then 'bident restart'" in result.err
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
    assert bident(*up, "--exit-timeout-secs=0", "--text-exit-timeout-secs=0").code == 0
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
