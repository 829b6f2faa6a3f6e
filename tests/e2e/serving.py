"""Server processes for the end-to-end tests, and the gates that hold their models up."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.ports import free_port
from benchmarks.servers import Bident

DEADLINE_SECONDS = 20.0
_POLL_SECONDS = 0.005
_HERE = Path(__file__).parent


class TensorServer(Bident):
    """``bident serve tensor`` with the plug-in ``gated`` installed; ``environment`` is added to this process's."""

    def __init__(
        self, repository: Path, log: Path, *flags: str, plugins: Path, environment: dict[str, str] | None = None
    ) -> None:
        self.metrics_port = free_port()
        super().__init__(repository, log, f"--metrics-port={self.metrics_port}", *flags)
        path = os.pathsep.join([str(plugins), str(_HERE)])
        self._environment.update({"PYTHONPATH": path, **(environment or {})})

    def wait(self, seconds: float = DEADLINE_SECONDS) -> int:
        """The exit code, once the process has ended by itself."""
        assert self._process is not None
        return self._process.wait(seconds)

    def signal(self, number: int) -> None:
        """Send a signal to the server alone."""
        os.kill(self.pid, number)

    @property
    def log_text(self) -> str:
        return self.log.read_text(errors="replace")


Launch = Callable[..., TensorServer]
"""What the fixture ``launch`` gives."""


def install_gated(folder: Path) -> Path:
    """A folder that, on PYTHONPATH, is an installed package with the backend ``gated``; returns it."""
    info = folder / "bident_gated-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bident-gated\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bident.backends]\ngated = gated_backend:GatedBackend\n")
    return folder


def eventually(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> Any:
    """The first truthy value of ``condition``; AssertionError naming ``what`` when there is none in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        time.sleep(_POLL_SECONDS)
    return value


class Gate:
    """Holds a gated model up until ``open``; ``batches`` are the inputs of each execution that has begun."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "open"
        self._journal = folder / "journal"

    def open(self) -> None:
        self._path.touch()

    def close(self) -> None:
        self._path.unlink(missing_ok=True)

    @property
    def batches(self) -> list[Any]:
        if not self._journal.exists():
            return []
        return [json.loads(line) for line in self._journal.read_text().splitlines()]

    def wait_for_batches(self, count: int) -> list[Any]:
        """The executions begun so far, at least ``count`` of them."""
        eventually(lambda: len(self.batches) >= count, f"{count} executions begun at {self._journal}")
        return self.batches

    def parameters(self, *, at_load: bool = False) -> str:
        """What to write in the config of a model that this gate holds up, when it runs or when it loads."""
        prefix = "load_" if at_load else ""
        return (
            f'parameters {{ key: "{prefix}gate" value {{ string_value: "{self._path}" }} }}\n'
            f'parameters {{ key: "{prefix}journal" value {{ string_value: "{self._journal}" }} }}\n'
        )
