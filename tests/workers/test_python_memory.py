"""Shared memory: it does not grow, it does not mix, and it is always given back."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from worker_driving import assert_gone, is_alive, wait_until

from bident.backends.python import segments
from bident.backends.python.messages import Request
from bident.backends.python.worker.bident_worker.arrays import DamagedError, Parcel, unpack
from bident.backends.python.worker.bident_worker.memory import KEPT_EMPTY, Blocks, Segment, Views, segment_size

SHM = Path("/dev/shm")


class Pair:
    """A writer and a reader of shared memory in one process."""

    def __init__(self):
        self.views = Views()
        self.made = 0
        self.blocks = Blocks(self.obtain, lambda segment: self.views.detach(segment.id))

    def obtain(self, size):
        descriptor, size = segments.make(size)
        self.made += 1
        segment = Segment(self.made, descriptor, size)
        self.views.attach(self.made, descriptor, size)
        os.close(descriptor)
        return segment

    def settle(self):
        self.blocks.free(self.views.take_freed())


def test_a_block_is_free_when_the_last_array_on_it_is_gone():
    pair = Pair()
    description, place = pair.blocks.take(1000)
    place[:] = 7
    look = pair.views.look(description)
    array = unpack(["A", "UINT8", [10, 10], 1, 100, 100], b"", look)
    part = array[2:4].T
    del look, array
    gc.collect()
    pair.settle()
    assert pair.blocks.live == 1
    assert part.sum() == 7 * 20
    del part
    pair.settle()
    assert pair.blocks.live == 0


def test_blocks_do_not_overlap_and_segments_are_used_again():
    pair = Pair()
    randomness = random.Random(5)
    held: list[tuple[object, int]] = []
    for number in range(3000):
        size = randomness.choice([1, 100, 5000, 70_000, 900_000])
        description, place = pair.blocks.take(size)
        place[:] = number % 251
        held.append((pair.views.look(description), number % 251))
        if len(held) > 8:
            look, value = held.pop(randomness.randrange(len(held)))
            assert look.min() == look.max() == value
            del look
            pair.settle()
    assert pair.blocks.size <= 16 * 1024 * 1024
    held.clear()
    pair.settle()
    assert pair.blocks.live == 0


def test_empty_segments_are_given_back():
    pair = Pair()
    looks = [pair.views.look(pair.blocks.take(20 * 1024 * 1024)[0]) for _ in range(8)]
    assert pair.blocks.size == 8 * segment_size(20 * 1024 * 1024)
    looks.clear()
    pair.settle()
    assert pair.blocks.size <= KEPT_EMPTY
    pair.blocks.trim()
    assert pair.blocks.size == 0


@pytest.mark.parametrize(
    "block",
    [
        None,
        [],
        [1, 1, 0],
        [1, 9, 0, 10],
        [1, 1, -1, 10],
        [1, 1, 0, 0],
        [1, 1, 0, 1 << 40],
        [1, 1, "0", 5],
        [1, [], 0, 5],
    ],
)
def test_nonsense_about_a_block_is_refused(block):
    pair = Pair()
    pair.blocks.take(100)
    with pytest.raises(DamagedError):
        pair.views.look(block)


def test_what_was_not_taken_cannot_be_freed():
    pair = Pair()
    description, _ = pair.blocks.take(100)
    with pytest.raises(DamagedError):
        pair.blocks.free([description[0] + 1])
    pair.blocks.free([description[0]])
    with pytest.raises(DamagedError):
        pair.blocks.free([description[0]])


@pytest.mark.parametrize(
    "description",
    [
        None,
        ["A"],
        ["A", "FP99", [1], 0, 0, 4],
        ["A", "FP32", [2], 0, 0, 4],
        ["A", "FP32", [-1], 0, 0, 4],
        ["A", "FP32", [1.0], 0, 0, 4],
        ["A", "FP32", [True], 0, 0, 4],
        ["A", "FP32", [1], 0, 14, 4],
        ["A", "FP32", [1], 0, -4, 4],
        ["A", "FP32", [1], 1, 0, 4],
        ["A", "FP32", [1 << 62, 4], 0, 0, 0],
        ["A", "FP32", [0, 1 << 62], 0, 0, 0],
        ["A", "FP32", [1] * 200, 0, 0, 4],
        ["A", "BYTES", [1 << 30], 0, 0, 16],
        ["A", "BYTES", [1], 0, 0, 16],
        ["A", "BYTES", [3], 0, 0, 16],
        [["A"], "BYTES", [], 0, 0, 0],
    ],
)
def test_nonsense_about_an_array_is_refused(description):
    with pytest.raises(DamagedError):
        unpack(description, bytearray(b"\xff" * 16), None)


def test_string_lengths_that_overflow_are_refused():
    raw = b"\xff\xff\xff\xff" * 3
    with pytest.raises(DamagedError):
        unpack(["A", "BYTES", [3], 0, 0, len(raw)], raw, None)


def test_arrays_on_a_parcel_lie_aligned():
    parcel = Parcel()
    descriptions = [
        parcel.add(str(size), "UINT8", (np.zeros(size, np.uint8),), (size,)) for size in (1, 15, 17, 30_000)
    ]
    assert [description[4] % 16 for description in descriptions[:3]] == [0, 0, 0]
    assert [description[3] for description in descriptions] == [0, 0, 0, 1]


@pytest.mark.skipif(sys.platform != "linux", reason="seals are Linux's")
def test_nobody_can_take_the_memory_away():
    descriptor, size = segments.make(10)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    os.close(descriptor)
    assert size == segment_size(10)


def test_memory_without_memfd_has_no_name_either(monkeypatch):
    monkeypatch.setattr(segments, "_memfd", segments._unlinked)
    before = shared_memory()
    pair = Pair()
    description, place = pair.blocks.take(5_000_000)
    place[:] = 3
    assert pair.views.look(description).sum() == 15_000_000
    assert shared_memory() == before


def test_a_worker_serves_without_memfd(monkeypatch, start_worker):
    monkeypatch.setattr(segments, "_memfd", segments._unlinked)
    array = np.arange(300_000, dtype=np.float64)
    reply = start_worker("identity").run(Request(inputs={"IN0": array}))[0]
    np.testing.assert_array_equal(reply.outputs["OUT0"], array)


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_five_thousand_batches_of_any_size_do_not_grow_memory(start_worker):
    driver = start_worker("identity")
    randomness = random.Random(1)
    pool = np.random.default_rng(1).random(200_000, dtype=np.float32)
    sizes = [1, 7, 100, 3000, 20_000, 200_000]
    marks = []
    for number in range(5000):
        array = pool[: randomness.choice(sizes)]
        reply = driver.run(Request(inputs={"IN0": array}), Request(inputs={"IN0": array[:1]}))[0]
        assert reply.outputs["OUT0"].shape == array.shape
        del reply
        driver.events.clear()
        if number % 1000 == 999:
            assert driver.worker._blocks.live <= 1
            marks.append((resident(driver.worker.pid), resident(os.getpid()), driver.worker._blocks.size))
    assert marks[-1][0] < marks[0][0] * 1.1
    assert marks[-1][1] < marks[0][1] * 1.1
    assert marks[-1][2] <= 8 * 1024 * 1024


def test_a_worker_may_not_have_all_the_memory(start_worker):
    driver = start_worker("script", memory_limit=8 * 1024 * 1024)
    code = "response = pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.zeros(%d, np.uint8))])"
    error = driver.fail(code % 50_000_000).error
    assert "no shared memory for 50000000 more bytes" in error.message
    # It goes on serving what fits.
    for _ in range(3):
        assert driver.fail(code % 5_000_000).outputs["Y"].shape == (5_000_000,)
        driver.events.clear()


def shared_memory() -> set[str]:
    """What lies in /dev/shm, but for what a real Triton that is measured meanwhile leaves there."""
    return {path.name for path in SHM.iterdir() if not path.name.startswith("triton_python_backend_")}


HOST = """
import sys, numpy as np, time
sys.path.insert(0, {tests!r})
from worker_driving import *
driver = Driver(spec_of(MODELS / "script"))
driver.run(Request(inputs={{"CODE": np.array([b"answer = 1"], object), "X": np.zeros(500_000)}}))
driver.send(Request(inputs={{"CODE": np.array([{code!r}], object)}}))
print(driver.worker.pid, flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize(
    "code", [b"answer = 1", b"time.sleep(100)", b"(lambda f: f(f))(lambda f: [0 for _ in iter(int, 1)])"]
)
def test_kill_9_of_the_server_leaves_nothing(code):
    before = shared_memory()
    source = HOST.format(tests=str(Path(__file__).parent), code=code)
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as host:
        worker = int(host.stdout.readline())
        assert is_alive(worker)
        host.send_signal(signal.SIGKILL)
    assert_gone(worker)
    assert shared_memory() == before


def test_kill_9_of_the_worker_leaves_nothing(start_worker):
    before = shared_memory()
    driver = start_worker("identity")
    driver.run(Request(inputs={"IN0": np.zeros(500_000)}))
    os.kill(driver.worker.pid, signal.SIGKILL)
    driver.pump(lambda: driver.died() is not None)
    assert_gone(driver.worker.pid)
    assert shared_memory() == before
    assert_no_memfd(driver)


def assert_no_memfd(driver):
    driver.events.clear()
    gc.collect()
    wait_until(lambda: not any("memfd:bident" in line for line in Path("/proc/self/maps").read_text().splitlines()))
