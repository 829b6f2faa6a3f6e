"""Trusted models inside the server: they share its process, and can keep their thread but not its exit."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from asking import Asker, tensor
from model_folders import parameters
from python_repository import write_script
from serving import Launch, eventually

THREAD = parameters(LANE="thread")
FOR_EVER = "while True: pass"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "repository"


def test_a_trusted_model_runs_in_the_server_and_others_do_not(launch: Launch, repository: Path) -> None:
    write_script(repository, "inside", THREAD)
    write_script(repository, "outside")
    server = launch(repository)
    ask = Asker(server.port)
    code = tensor("CODE", "BYTES", [1], ["answer = os.getpid()"])
    pids = {name: int(ask.infer(name, code).data("ANSWER")[0]) for name in ("inside", "outside")}
    assert pids["inside"] == server.pid
    assert [child.pid for child in psutil.Process(server.pid).children()] == [pids["outside"]]


def test_a_model_that_never_returns_does_not_keep_the_server(launch: Launch, repository: Path, tmp_path: Path) -> None:
    write_script(repository, "inside", THREAD)
    server = launch(repository, "--exit-timeout-secs=1")
    entered = tmp_path / "entered"
    code = tensor("CODE", "BYTES", [1], [f"open({str(entered)!r}, 'w').close()\n{FOR_EVER}"])
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(Asker(server.port).infer, "inside", code)
        eventually(entered.exists, "the model is at work")
        server.signal(signal.SIGTERM)
        assert server.wait(10) == 1
        with pytest.raises(httpx.HTTPError):
            answer.result()


def test_an_initialize_that_never_returns_does_not_keep_the_server(
    launch: Launch, repository: Path, tmp_path: Path
) -> None:
    entered = tmp_path / "entered"
    write_script(repository, "inside", THREAD, INITIALIZE=f"open({str(entered)!r}, 'w').close()\n{FOR_EVER}")
    server = launch(repository, wait=False)
    eventually(entered.exists, "the model is being initialised")
    server.signal(signal.SIGTERM)
    assert server.wait(10) in (0, 1)
