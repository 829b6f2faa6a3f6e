"""Real servers to be hostile to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.servers import Bident
from hostile import Honest
from tests.conftest import Serve, write_identity


@pytest.fixture
def victim(serve: Serve, tmp_path: Path) -> Iterator[Bident]:
    """A server with the identity model ``echo``; alive and without a traceback in its log after the test too."""
    write_identity(tmp_path / "models", "echo")
    yield from _watched(serve(tmp_path / "models"))


@pytest.fixture
def impatient_victim(serve: Serve, tmp_path: Path) -> Iterator[Bident]:
    """The same with clients' time cut short."""
    write_identity(tmp_path / "models", "echo")
    yield from _watched(serve(tmp_path / "models", "--http-header-timeout-secs=2", "--http-idle-timeout-secs=3"))


def _watched(server: Bident) -> Iterator[Bident]:
    yield server
    server.check_alive()
    assert "Traceback" not in server.log.read_text(errors="replace")


@pytest.fixture
def honest(victim: Bident) -> Iterator[Honest]:
    """A client of the victim, warmed up."""
    client = Honest(victim)
    client.median()
    yield client
    client.close()
