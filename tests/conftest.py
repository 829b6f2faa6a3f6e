"""What all tests share: model folders small enough to write in a test, and real server processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.servers import Bident

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
