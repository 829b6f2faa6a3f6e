"""Servers that are kept running: small programs stand in for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from bident.supervision import Pauses, ended, labels, unlabelled

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

SERVER = """
import os, pathlib, signal, sys, time
from bident.servers import end_with_supervisor
name, behaviour = sys.argv[1:]
def stop(*_):
    print(name, "stops", flush=True)
    if behaviour != "stubborn":
        os._exit(0)
signal.signal(signal.SIGTERM, stop)
end_with_supervisor()
if behaviour == "fails":
    sys.exit("no such port")
print(name, "serves", os.getpid(), flush=True)
while True:
    time.sleep(0.02)
"""
SUPERVISOR = """
import logging, sys
from bident import servers
logging.basicConfig(level=logging.INFO, format="%(message)s")
servers._GRACE_SECONDS = 0.2
program = sys.argv[1]
starts = [servers.ServerStart(n, [sys.executable, program, n, b], 0.2) for n, b in zip(["one", "second"], sys.argv[2:])]
sys.exit(servers.run_servers(starts))
"""


class Supervisor:
    def __init__(self, folder: Path, *behaviours: str) -> None:
        program = folder / "server.py"
        program.write_text(SERVER, encoding="utf-8")
        self.log = folder / "log"
        with self.log.open("wb") as log:
            command = [sys.executable, "-c", SUPERVISOR, str(program), *behaviours]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)

    def pids(self, name: str) -> list[int]:
        return [int(line.split()[-1]) for line in self.said.splitlines() if f"| {name} serves" in line]

    def serve(self) -> tuple[int, int]:
        """Wait for both; their process ids."""
        self.wait(lambda: self.pids("one") and self.pids("second"))
        return self.pids("one")[-1], self.pids("second")[-1]


Start = Callable[..., Supervisor]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Supervisor] = []

    def begin(*behaviours: str) -> Supervisor:
        started.append(Supervisor(tmp_path, *behaviours))
        return started[-1]

    yield begin
    for supervisor in started:
        supervisor.process.kill()
        supervisor.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_both_stop_when_it_is_told_to(start: Start, number: int) -> None:
    supervisor = start("", "")
    supervisor.serve()
    supervisor.process.send_signal(number)
    assert supervisor.process.wait(20) == 0
    assert "one    | one stops\n" in supervisor.said
    assert "second | second stops\n" in supervisor.said


def test_one_that_dies_is_started_again_and_the_other_does_not_notice(start: Start) -> None:
    supervisor = start("", "")
    one, second = supervisor.serve()
    os.kill(one, signal.SIGKILL)
    supervisor.wait(lambda: len(supervisor.pids("one")) == 2)
    assert "the one server ended (killed by SIGKILL); starting it again in 0.2 s" in supervisor.said
    assert supervisor.pids("second") == [second]
    assert psutil.pid_exists(second)
    # Also one that somebody has asked to end.
    os.kill(second, signal.SIGTERM)
    supervisor.wait(lambda: len(supervisor.pids("second")) == 2)
    supervisor.process.terminate()
    assert supervisor.process.wait(20) == 0


def test_one_that_cannot_start_ends_it_all(start: Start) -> None:
    supervisor = start("", "fails")
    assert supervisor.process.wait(20) == 1
    assert "second | no such port\n" in supervisor.said
    assert "the second server cannot start (exit code 1), for the reason above: stopping" in supervisor.said


def test_one_that_does_not_stop_is_killed(start: Start) -> None:
    supervisor = start("stubborn", "")
    one, _ = supervisor.serve()
    supervisor.process.terminate()
    assert supervisor.process.wait(20) == 1
    assert "exit timeout: the one server did not end, and is killed" in supervisor.said
    assert not psutil.pid_exists(one)


def test_a_second_signal_ends_everything_at_once(start: Start) -> None:
    supervisor = start("stubborn", "stubborn")
    pids = supervisor.serve()
    supervisor.process.terminate()
    supervisor.wait(lambda: "received." in supervisor.said)
    supervisor.process.terminate()
    assert supervisor.process.wait(20) == 1
    supervisor.wait(lambda: not any(map(psutil.pid_exists, pids)))


def test_nothing_is_left_behind_when_it_is_killed(start: Start) -> None:
    supervisor = start("", "")
    pids = supervisor.serve()
    supervisor.process.kill()
    supervisor.process.wait()
    supervisor.wait(lambda: not any(map(psutil.pid_exists, pids)))


def test_pauses_grow_until_a_process_has_lived() -> None:
    pauses = Pauses()
    assert [pauses.after(1) for _ in range(10)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    assert pauses.after(61) == 0.1


def test_words() -> None:
    assert [ended(code) for code in (3, -9, -250)] == ["exit code 3", "killed by SIGKILL", "killed by signal 250"]
    assert labels(["tensor", "text"]) == ["tensor | ", "text   | "]
    assert unlabelled("text   | I1130 a | b") == "I1130 a | b"
    assert unlabelled("I1130 13:18 a | b") == "I1130 13:18 a | b"
