"""Servers for the end-to-end tests: one shared by the tests that only ask, and as many as a test starts itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import Asker
from bug_models import Shared, write_repository
from pages import typed
from serving import Gate, Launch, TensorServer, install_gated

from benchmarks.servers import bident_command


@pytest.fixture(scope="session")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What has to be on a server's PYTHONPATH for it to have the backend ``gated``."""
    return install_gated(tmp_path_factory.mktemp("plugins"))


@pytest.fixture(scope="session")
def iris(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the sample model ``iris_sklearn``."""
    folder = tmp_path_factory.mktemp("zoo")
    typed("bident zoo build iris_sklearn --into .", folder)
    return folder / "iris_sklearn"


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of all sample models; nobody may change it."""
    target = tmp_path_factory.mktemp("samples") / "model_repository"
    command = [bident_command(), "zoo", "build", "--all", "--into", target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture
def launch(tmp_path: Path, plugins: Path) -> Iterator[Launch]:
    """Starts a server on a repository with further flags, ready unless told otherwise; stopped after the test."""
    started: list[TensorServer] = []

    def start(
        repository: Path, *flags: str, wait: bool = True, environment: dict[str, str] | None = None
    ) -> TensorServer:
        log = tmp_path / f"server{len(started)}.log"
        server = TensorServer(repository, log, *flags, plugins=plugins, environment=environment)
        started.append(server)
        server.start()
        if wait:
            server.wait_ready()
        return server

    yield start
    for server in started:
        server.stop(grace_seconds=3.0)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A gate of the test's own, open for whoever still waits at the end."""
    made = Gate(tmp_path / "gate")
    yield made
    made.open()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Iterator[Shared]:
    """One server in explicit mode with every model of ``bug_models``, started in the C locale."""
    base = tmp_path_factory.mktemp("shared")
    repository, gates = base / "repository", base / "gates"
    write_repository(repository, gates)
    server = TensorServer(
        repository,
        base / "server.log",
        "--model-control-mode=explicit",
        "--load-model=*",
        "--http-max-input-size=8000000",
        "--strict-readiness=false",  # tests load models that must fail
        plugins=plugins,
        environment={"LC_ALL": "C", "LANG": "C"},
    )
    with server:
        ask = Asker(server.port)
        yield Shared(server, repository, gates, ask)
        ask.close()
        for gate in gates.iterdir():
            Gate(gate).open()


@pytest.fixture
def ask(shared: Shared) -> Iterator[Asker]:
    """A client of the shared server, which must be alive and free of tracebacks after the test too."""
    before = len(shared.server.log_text)
    yield shared.ask
    shared.server.check_alive()
    assert shared.ask.get("/v2/health/live").status == 200
    assert "Traceback" not in shared.server.log_text[before:]
