"""Servers tied to a terminal, what dead ones leave, settings, a Triton that cannot run."""

from __future__ import annotations

import mmap
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from bident.doctor.machine.real_triton import RealTriton
from bident.doctor.machine.settings import RelativePaths, Settings
from bident.doctor.machine.stale import LeftoverSharedMemory, StaleRecord, mapped_files
from bident.doctor.machine.surroundings import Surroundings
from bident.doctor.machine.terminal import DyingTerminal, servers_here
from bident.errors import ServeError
from bident.local import process
from bident.local.record import Record
from tests.unit.doctor.found import findings, only

SERVER = """
import fcntl, signal, sys, termios
_, terminal, hangup, *_ = sys.argv
if int(terminal):
    fcntl.ioctl(int(terminal), termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, getattr(signal, hangup))
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def _server(terminal: int = 0, hangup: str = "SIG_DFL") -> Iterator[psutil.Process]:
    """A process that is called as a server is; it makes ``terminal`` its own, where one is given."""
    command = [sys.executable, "-c", SERVER, str(terminal), hangup, "bident", "serve"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, pass_fds=[terminal]
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        yield psutil.Process(started.pid)
        started.communicate("")


@pytest.fixture
def terminal() -> Iterator[int]:
    ours, theirs = pty.openpty()
    yield theirs
    os.close(theirs)
    os.close(ours)


EXAMINE = """
import psutil, sys
from bident.doctor.check import Patient
from bident.doctor.machine.terminal import DyingTerminal
for found in DyingTerminal(lambda: [psutil.Process(int(sys.argv[1]))]).examine(Patient()):
    print(found.where, found.seen)
"""


def _examined(server: psutil.Process) -> str:
    """What a doctor finds that starts now: psutil looks for terminals once in a process."""
    command = [sys.executable, "-c", EXAMINE, str(server.pid)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_server_of_a_terminal(terminal: int) -> None:
    with _server(terminal) as server:
        said = _examined(server)
        assert said.startswith(f"pid {server.pid} ")
        assert "belongs to the terminal /dev/pts/" in said
        assert server.pid in [each.pid for each in servers_here()]


def test_a_detached_server_stays() -> None:
    with _server() as server:
        assert findings(DyingTerminal(lambda: [server])) == []


def test_nohup_helps(terminal: int) -> None:
    with _server(terminal, "SIG_IGN") as server:
        assert _examined(server) == ""


PARENT = """
import subprocess, sys
terminal, new_session, *command = sys.argv[1:]
child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=[int(terminal)],
                         start_new_session=new_session == "yes")
print(child.stdout.readline().strip(), child.pid, flush=True)
child.wait()
"""


@contextmanager
def _started_by(program: Path, words: list[str], terminal: int, new_session: str) -> Iterator[psutil.Process]:
    """A server whose parent is ``program``, with ``words`` in its command line."""
    server = [sys.executable, "-c", SERVER, str(terminal), "SIG_DFL", "bident", "serve"]
    command = [program, "-c", PARENT, str(terminal), new_session, *server, *words]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, pass_fds=[terminal]
    ) as parent:
        assert parent.stdout is not None
        ready, pid = parent.stdout.readline().split()
        assert ready == "ready"
        yield psutil.Process(int(pid))
        parent.communicate("")


def test_a_server_of_a_notebook() -> None:
    with _started_by(Path(sys.executable), ["ipykernel_launcher"], 0, "no") as server:
        assert "belongs to the notebook of pid" in only(DyingTerminal(lambda: [server])).seen
    with _started_by(Path(sys.executable), ["ipykernel_launcher"], 0, "yes") as server:
        assert findings(DyingTerminal(lambda: [server])) == []


def test_a_terminal_that_is_kept(tmp_path: Path, terminal: int) -> None:
    """As tmux keeps those that it opens."""
    (tmp_path / "tmux").symlink_to(Path(sys.executable).resolve())
    with _started_by(tmp_path / "tmux", [], terminal, "yes") as server:
        assert _examined(server) == ""


def _record(folder: Path, pid: int, born: float) -> Path:
    state = folder / ".bident"
    state.mkdir()
    Record(pid, born, "http://127.0.0.1:21550", "", "127.0.0.1", "none", 30, "").write(state)
    return state


def test_the_record_of_a_dead_server(tmp_path: Path) -> None:
    with _server() as server:
        state = _record(tmp_path, server.pid, process.born(server.pid))
        check = StaleRecord(Surroundings({}, tmp_path))
        assert findings(check) == []
    found = only(check)
    assert f"pid {server.pid}" in found.seen
    assert found.fix is not None
    found.fix.apply()
    assert findings(check) == []
    assert Record.read_last(state) is not None


def test_a_lone_process_id_is_stale(tmp_path: Path) -> None:
    (tmp_path / ".bident").mkdir()
    (tmp_path / ".bident" / "serve.pid").write_text("1\n")
    check = StaleRecord(Surroundings({}, tmp_path))
    fix = only(check).fix
    assert fix is not None
    fix.apply()
    assert findings(check) == []


def test_shared_memory_of_a_killed_triton(tmp_path: Path) -> None:
    left = tmp_path / "triton_python_backend_shm_region_1"
    left.write_bytes(bytes(2 << 20))
    (tmp_path / "anything else").touch()
    assert findings(LeftoverSharedMemory(folder=tmp_path)) == []  # it may be about to be opened
    os.utime(left, (0, 0))
    found = only(LeftoverSharedMemory(folder=tmp_path))
    assert "1 region (2 MiB)" in found.seen
    assert findings(LeftoverSharedMemory(folder=tmp_path, in_use=lambda: {left.name})) == []
    assert found.fix is not None
    found.fix.apply()
    assert [path.name for path in tmp_path.iterdir()] == ["anything else"]


def test_shared_memory_that_came_into_use_is_left_alone(tmp_path: Path) -> None:
    left = tmp_path / "triton_python_backend_shm_region_1"
    left.touch()
    os.utime(left, (0, 0))
    used: set[str] = set()
    fix = only(LeftoverSharedMemory(folder=tmp_path, in_use=lambda: used)).fix
    used.add(left.name)
    assert fix is not None
    with pytest.raises(ServeError, match="nothing removed"):
        fix.apply()
    assert left.exists()


def test_open_shared_memory_is_seen() -> None:
    path = Path(f"/dev/shm/bident-test-{os.getpid()}")
    path.write_bytes(bytes(4096))
    try:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0):
            assert path.name in mapped_files()
        assert path.name not in mapped_files()
    finally:
        path.unlink()


def test_settings_that_would_be_refused(tmp_path: Path) -> None:
    assert "http-address" in only(Settings(Surroundings({"BIDENT_HTTP_ADDRESS": "0.0.0.0"}, tmp_path))).seen
    (tmp_path / "bident.toml").write_text("[tensor]\nhttp_prot = 1\n")
    found = only(Settings(Surroundings({}, tmp_path)))
    assert found.where == str(tmp_path / "bident.toml")
    assert "http-port" in found.seen


def test_misspelt_variables(tmp_path: Path) -> None:
    environ = {"BIDENT_HTTP_PROT": "8100", "BIDENT_URL": "http://x", "BIDENT_SOMETHING_ELSE_ENTIRELY": "1"}
    assert only(Settings(Surroundings(environ, tmp_path))).cure == "did you mean BIDENT_HTTP_PORT?"


def test_relative_paths_in_the_environment(tmp_path: Path) -> None:
    environ = {"BIDENT_MODEL_REPOSITORY": "models;/srv/models", "BIDENT_LOG_FILE": "~/x", "BIDENT_API_KEY_FILE": "keys"}
    cures = [found.cure for found in findings(RelativePaths(Surroundings(environ, tmp_path)))]
    assert sorted(cures) == [
        f"export BIDENT_API_KEY_FILE={tmp_path / 'keys'}",
        f"export BIDENT_MODEL_REPOSITORY={tmp_path / 'models'}",
    ]


def test_relative_paths_in_the_file_are_mended(tmp_path: Path) -> None:
    file = tmp_path / "bident.toml"
    file.write_text("[tensor]\nmodel-repository = [\n  'models', \"/srv/models\",\n]\nhttp-port = 8000\n")
    check = RelativePaths(Surroundings({}, tmp_path))
    found = only(check)
    assert found.where == f"{file}:3"
    assert found.fix is not None
    found.fix.apply()
    assert findings(check) == []
    assert Surroundings({}, tmp_path).settings()[0].model_repository == (tmp_path / "models", Path("/srv/models"))
    assert "models" in (tmp_path / "bident.toml.bak").read_text()


def _triton(folder: Path, program: bytes) -> Surroundings:
    binary = folder / "bin" / "tritonserver"
    binary.parent.mkdir(parents=True)
    binary.write_bytes(program)
    binary.chmod(0o755)
    return Surroundings({"TRITON_HOME": str(folder), "PATH": os.environ["PATH"]}, folder)


def test_a_triton_that_lacks_a_library(tmp_path: Path) -> None:
    program = Path("/bin/cat").resolve().read_bytes()
    assert b"libc.so.6" in program
    library, stub = findings(RealTriton(_triton(tmp_path, program.replace(b"libc.so.6", b"libb64.so"))))
    assert library.where == str(tmp_path / "bin" / "tritonserver")
    assert "libb64.so" in library.seen
    assert "triton_python_backend_stub" in stub.seen


def test_triton_home_is_elsewhere(tmp_path: Path) -> None:
    found = only(RealTriton(Surroundings({"TRITON_HOME": str(tmp_path)}, tmp_path)))
    assert found.where == f"TRITON_HOME={tmp_path}"


def test_no_triton_is_no_fault(tmp_path: Path) -> None:
    assert findings(RealTriton(Surroundings({"PATH": str(tmp_path)}, tmp_path))) == []
