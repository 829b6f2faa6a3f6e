"""What the channel to a Python model costs, without a server around it.

    python -m benchmarks.python_channel_bench

Per request and side in microseconds at several batch sizes, round trips of one request, and large
tensors against copying them once in one process.
"""

from __future__ import annotations

import select
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from bident.backends.python.host import Worker
from bident.backends.python.messages import Answers, Batch, BatchDone, Event, Request
from bident.backends.python.spec import WorkerSpec

MODEL = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "IN0").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", array)]))
        return responses
"""
SECONDS = 1.0


def processor_ns(pid: int) -> int:
    """How long a process has been on a processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def small(worker: Worker, count: int) -> str:
    """``count`` requests of FP32[4] per batch, as fast as they go."""
    columns = {"IN0": np.random.default_rng(1).random((count, 4), dtype=np.float32)}
    sending = receiving = batches = execute = 0
    trips: list[int] = []
    began, before = time.perf_counter(), processor_ns(worker.pid)
    while time.perf_counter() - began < SECONDS:
        at = time.perf_counter_ns()
        worker.send(Batch(batches, [Request() for _ in range(count)], columns))
        sent = time.perf_counter_ns()
        sending += sent - at
        events: list[Event] = []
        while len(events) < 2:
            select.select([worker], [], [])
            start = time.perf_counter_ns()
            events += worker.receive()
            receiving += time.perf_counter_ns() - start
        trips.append(time.perf_counter_ns() - at)
        execute += sum(event.end_ns - event.start_ns for event in events if isinstance(event, BatchDone))
        batches += 1
    requests = batches * count
    in_worker = (processor_ns(worker.pid) - before) / requests / 1000
    return (
        f"{count:>5} per batch: host {(sending + receiving) / requests / 1000:6.2f} us "
        f"(send {sending / requests / 1000:.2f}, receive {receiving / requests / 1000:.2f}), "
        f"worker {in_worker:6.2f} us (of it execute {execute / requests / 1000:.2f}), "
        f"round trip p50 {statistics.median(trips) / 1000:7.1f} us"
    )


def large(worker: Worker, size: int) -> str:
    """One tensor of ``size`` bytes there and back, against copying it once."""
    array = np.random.default_rng(1).integers(0, 255, size, np.uint8)
    target = np.empty_like(array)
    trips: list[float] = []
    copies: list[float] = []
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        at = time.perf_counter()
        np.copyto(target, array)
        copied = time.perf_counter()
        worker.send(Batch(0, [Request(inputs={"IN0": array})]))
        events: list[Event] = []
        while len(events) < 2:
            select.select([worker], [], [])
            events += worker.receive()
        trips.append(time.perf_counter() - copied)
        copies.append(copied - at)
        assert isinstance(events[0], Answers)
        assert events[0].columns["OUT0"].nbytes == size
        del events
    trip, copy = statistics.median(trips), statistics.median(copies)
    return (
        f"{size >> 20:>4} MB: there and back {trip * 1e3:6.2f} ms, one copy {copy * 1e3:6.2f} ms: "
        f"{size / trip / 1e9:.2f} GB/s, a {trip / copy:.2f}th of the speed of copying"
    )


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "identity"
        (model / "1").mkdir(parents=True)
        (model / "1" / "model.py").write_text(MODEL)
        began = time.perf_counter()
        worker = Worker(WorkerSpec("identity", "1", "identity_0_0", model, "{}"))
        worker.initialize(60, lambda event: None)
        print(f"started in {(time.perf_counter() - began) * 1e3:.0f} ms")
        try:
            for count in (1, 8, 32, 128):
                print(small(worker, count))
            for size in (1 << 20, 16 << 20, 64 << 20):
                print(large(worker, size))
        finally:
            worker.finalize(10, lambda event: None)


if __name__ == "__main__":
    main()
