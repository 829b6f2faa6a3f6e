"""What all tests share: model folders small enough to write in a test, and real server processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from benchmarks.servers import Bident

# How fast a machine is, is not what tests ask.
settings.register_profile("bident", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bident")

IDENTITY = """
backend: "identity"
max_batch_size: {batch}
input [ {{ name: "X", data_type: TYPE_{datatype}, dims: [ {dims} ] }} ]
output [ {{ name: "Y", data_type: TYPE_{datatype}, dims: [ {dims} ] }} ]
{more}
"""


def write_identity(
    repository: Path, name: str, *, datatype: str = "FP32", dims: str = "-1", batch: int = 8, more: str = ""
) -> Path:
    """A model folder that answers Y = X; returns it."""
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(IDENTITY.format(batch=batch, datatype=datatype, dims=dims, more=more))
    return folder


@pytest.fixture(autouse=True)
def log_as_it_was() -> Iterator[None]:
    """A test in which a server opens its log, in this process, leaves the log of the next ones alone."""
    root = logging.getLogger("bident")
    before = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


Serve = Callable[..., Bident]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts ``bident serve tensor`` on a repository with further flags; every server is stopped afterwards."""
    started: list[Bident] = []

    def start(repository: Path, *flags: str) -> Bident:
        server = Bident(repository, tmp_path / f"server{len(started)}.log", *flags)
        started.append(server)
        server.start()
        server.wait_ready()
        return server

    yield start
    for server in started:
        server.stop()
