"""Tensors in shared memory: exactly the bytes of their shape, and never more than there is room for."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from bident.doors import shared_tensors
from bident.doors.shared_tensors import SharedInput, bytes_to_read, read_input, read_inputs, write_output
from bident.engine.shared_memory import SharedMemory, Window
from bident.errors import Code, ServeError
from bident.wire.datatypes import BOOL, BYTES, DATATYPES, FP32
from bident.wire.infer import InferInput, InferOutput
from tests.shared_objects import SharedObject

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no POSIX shared memory")


class Region:
    """64 bytes of shared memory, registered."""

    def __init__(self, made: SharedObject) -> None:
        self.made = made
        self._memory = SharedMemory(allowed=True)
        self._memory.register_system("r", made.key, 0, made.size)

    def window(self, size: int, offset: int = 0) -> Window:
        return self._memory.view("r", offset, size)


@pytest.fixture
def region() -> Iterator[Region]:
    with SharedObject(64) as made:
        yield Region(made)


@pytest.mark.parametrize("word", [word for word in DATATYPES if word not in ("BOOL", "BYTES")])
def test_numbers_of_every_datatype(region: Region, word: str) -> None:
    datatype = DATATYPES[word]
    array = np.array([[1, 0], [2, 100]]).astype(datatype.numpy)
    assert write_output(InferOutput("Y", datatype, array), region.window(64)) == array.nbytes
    read = read_input("X", datatype, (2, 2), 4, region.window(array.nbytes))
    assert read.dtype == datatype.numpy
    assert (read == array).all()


def test_bools_are_true_or_false_whatever_the_byte(region: Region) -> None:
    region.made.put(bytes([0, 1, 2, 255]))
    assert read_input("X", BOOL, (4,), 4, region.window(4)).tolist() == [False, True, True, True]


def test_strings(region: Region) -> None:
    strings = np.array([b"ab", b"", "ф".encode()], dtype=object)
    size = write_output(InferOutput("Y", BYTES, strings), region.window(64))
    assert region.made.get(size) == b"".join(struct.pack("<I", len(text)) + text for text in strings)
    assert read_input("X", BYTES, (3,), 3, region.window(size)).tolist() == strings.tolist()


@pytest.mark.parametrize("size", [12, 20])
def test_a_size_that_is_not_the_shapes(region: Region, size: int) -> None:
    with pytest.raises(ServeError, match=rf"input byte size mismatch for input 'X'\. Expected 16, got {size}"):
        read_input("X", FP32, (1, 4), 4, region.window(size))


@pytest.mark.parametrize(("count", "size"), [(2, 17), (4, 17), (3, 16), (3, 18), (20, 64)])
def test_strings_that_do_not_fill_their_bytes(region: Region, count: int, size: int) -> None:
    region.made.put(b"\2\0\0\0ab\0\0\0\0\3\0\0\0xyz\1\0\0\0")
    with pytest.raises(ServeError) as refused:
        read_input("X", BYTES, (count,), count, region.window(size))
    assert refused.value.code is Code.INVALID_ARG


def test_slices_of_a_batch_go_as_they_are(region: Region) -> None:
    batch = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert write_output(InferOutput("Y", FP32, batch[:, 1:3]), region.window(16, 8)) == 16
    assert np.frombuffer(region.made.get(16, 8), np.float32).tolist() == [1, 2, 7, 8]


def test_an_output_without_room(region: Region) -> None:
    with pytest.raises(ServeError) as refused:
        write_output(InferOutput("Y", FP32, np.zeros((1, 4), np.float32)), region.window(12))
    assert refused.value.code is Code.INTERNAL
    assert refused.value.message == (
        "shared memory size specified with the request for output 'Y' (12 bytes) should be at least 16 bytes to hold "
        "the results"
    )
    assert region.made.get(64) == bytes(64)


def shared_input(region: Region, name: str) -> SharedInput:
    return SharedInput(InferInput(name, FP32, (1,), 1, []), region.window(4))


def test_only_what_the_model_has_is_read(region: Region) -> None:
    known, unknown = shared_input(region, "X"), shared_input(region, "Z")
    read_inputs([known, unknown], {"X": None})
    assert np.asarray(known.tensor.data).tolist() == [0.0]
    assert unknown.tensor.data == []


def test_a_request_has_a_limit(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_tensors, "_MOST_BYTES", 10)
    inputs = [shared_input(region, name) for name in "abc"]
    assert bytes_to_read(inputs[:2]) == 8
    with pytest.raises(ServeError, match="10 bytes in shared memory, got 12"):
        bytes_to_read(inputs)
