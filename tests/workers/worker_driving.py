"""Workers for tests: real processes, driven without an event loop."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bident.backends.python.host import Worker
from bident.backends.python.messages import Answers, Batch, BatchDone, Died, Event, LogLine, MetricCall, Reply, Request
from bident.backends.python.spec import WorkerSpec

MODELS = Path(__file__).parent / "models"
DEADLINE_SECONDS = 20.0


class Driver:
    """A worker, and what has come from it."""

    def __init__(self, spec: WorkerSpec, start_seconds: float = DEADLINE_SECONDS) -> None:
        self.events: list[Event] = []
        self.answer: Callable[[Event], None] = lambda event: None
        self.worker = Worker(spec)
        self.worker.initialize(start_seconds, self.events.append)
        self._last_batch = 0

    def pump(self, until: Callable[[], bool], seconds: float = DEADLINE_SECONDS) -> None:
        """Receive until ``until()`` holds. Fails when it does not in time."""
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, f"nothing came of it; so far: {self.events}"
            if not self.worker.alive:
                return
            writable = [self.worker] if self.worker.wants_write else []
            select.select([self.worker], writable, [], 0.05)
            self.worker.flush()
            for event in self.worker.receive():
                self.events.append(event)
                self.answer(event)

    def send(self, *requests: Request, columns: Any = None) -> int:
        self._last_batch += 1
        self.worker.send(Batch(self._last_batch, requests, columns))
        return self._last_batch

    def replies(self, batch: int) -> list[Reply]:
        """What has been answered to a batch, in the order in which it came."""
        found: list[Reply] = []
        for event in self.events:
            if isinstance(event, Answers) and event.batch == batch:
                found += event.replies()
            elif isinstance(event, Reply) and event.batch == batch:
                found.append(event)
        return found

    def run(self, *requests: Request, columns: Any = None) -> list[Reply]:
        """Send a batch and wait for all that comes of it."""
        batch = self.send(*requests, columns=columns)
        self.finish(batch, len(requests))
        return self.replies(batch)

    def finish(self, batch: int, count: int = 1) -> None:
        """Wait until each of the batch's requests has its last answer, and ``execute`` has returned."""

        def over() -> bool:
            left = {reply.index for reply in self.replies(batch) if reply.final}
            done = any(isinstance(event, BatchDone) and event.batch == batch for event in self.events)
            return len(left) == count and (done or not self.worker.alive)

        self.pump(over)

    def script(self, code: str, **details: Any) -> Any:
        """Run ``code`` in the ``script`` model; returns its ``answer``. Fails when it failed."""
        reply = self.fail(code, **details)
        assert reply.error is None, reply.error
        return json.loads(reply.outputs["ANSWER"][0])

    def fail(self, code: str, **details: Any) -> Reply:
        """Run ``code`` in the ``script`` model; returns the last reply."""
        return self.run(Request(inputs={"CODE": np.array([code.encode()], object)}, **details))[-1]

    def logged(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, LogLine)]

    def died(self) -> Died | None:
        return next((event for event in self.events if isinstance(event, Died)), None)


def spec_of(folder: Path, **changes: Any) -> WorkerSpec:
    config = changes.pop("config", {"name": folder.name, "max_batch_size": 0, "input": [], "output": []})
    spec = WorkerSpec(folder.name, "1", f"{folder.name}_0_0", folder, json.dumps(config))
    return replace(spec, **changes)


Start = Callable[..., Driver]


@pytest.fixture
def start_worker() -> Iterator[Start]:
    """Starts a worker for a model of ``models`` (by name) or for any model's folder."""
    drivers: list[Driver] = []

    def start(model: str | Path, *, start_seconds: float = DEADLINE_SECONDS, **changes: Any) -> Driver:
        folder = MODELS / model if isinstance(model, str) else model
        driver = Driver(spec_of(folder, **changes), start_seconds)
        drivers.append(driver)
        return driver

    yield start
    for driver in drivers:
        driver.worker.close()
        assert_gone(driver.worker.pid)


@pytest.fixture
def script(start_worker: Start) -> Driver:
    """A worker of the ``script`` model."""
    return start_worker("script")


@pytest.fixture
def write_model(tmp_path: Path) -> Callable[..., Path]:
    """Writes a ``model.py``; returns the model's folder."""

    def write(source: str, name: str = "written", **files: str) -> Path:
        folder = tmp_path / name
        (folder / "1").mkdir(parents=True)
        (folder / "1" / "model.py").write_text(source, encoding="utf-8")
        for file, text in files.items():
            (folder / "1" / f"{file}.py").write_text(text, encoding="utf-8")
        return folder

    return write


def is_alive(pid: int) -> bool:
    """Whether a process runs (one that has ended and awaits its parent does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def assert_gone(pid: int, seconds: float = 10.0) -> None:
    """Fails unless the process ends in time."""
    wait_until(lambda: not is_alive(pid), seconds)


def wait_until(holds: Callable[[], bool], seconds: float = DEADLINE_SECONDS) -> None:
    """Fails unless ``holds()`` in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.005)


def descriptors() -> int:
    """How many file descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def metric_calls(events: list[Event]) -> list[MetricCall]:
    return [event for event in events if isinstance(event, MetricCall)]
