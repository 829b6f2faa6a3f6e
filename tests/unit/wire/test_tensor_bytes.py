"""Tensor bytes: what lies on the wire is exactly the tensor, or it is refused."""

from __future__ import annotations

import re
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from bident.errors import Code, ServeError
from bident.wire.datatypes import BOOL, BYTES, DATATYPES, FP32
from bident.wire.infer import element_count
from bident.wire.tensor import pack, unpack

FIXED = [datatype for datatype in DATATYPES.values() if datatype is not BYTES]


def element(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def strings(*values: bytes, shape: tuple[int, ...] | None = None) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array.reshape(shape if shape is not None else (len(values),))


def refusal(*args: Any) -> str:
    with pytest.raises(ServeError) as caught:
        unpack(*args)
    assert caught.value.code is Code.INVALID_ARG
    return caught.value.message


# Fixed-size datatypes


@given(data=st.data())
def test_fixed_size_tensors_come_back_bit_for_bit(data: st.DataObject) -> None:
    datatype = data.draw(st.sampled_from(FIXED))
    shape = data.draw(st_numpy.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    count = element_count(shape)
    raw = data.draw(st.binary(min_size=count * datatype.size, max_size=count * datatype.size))
    if datatype is BOOL:
        raw = bytes(byte & 1 for byte in raw)

    array = unpack("x", datatype, shape, count, raw)

    assert (array.shape, array.dtype) == (shape, datatype.numpy)
    assert bytes(pack(array, datatype)) == raw


@given(data=st.data())
def test_packing_does_not_depend_on_memory_layout(data: st.DataObject) -> None:
    datatype = data.draw(st.sampled_from([datatype for datatype in FIXED if datatype.name != "BF16"]))
    array = data.draw(st_numpy.arrays(datatype.numpy, st_numpy.array_shapes(max_dims=3, max_side=4)))
    expected = array.tobytes()

    assert bytes(pack(np.asfortranarray(array), datatype)) == expected
    assert bytes(pack(array.astype(datatype.numpy.newbyteorder(">")), datatype)) == expected
    assert bytes(pack(np.repeat(array, 2, axis=-1)[..., ::2], datatype)) == expected


def test_known_bytes() -> None:
    assert bytes(pack(np.array([[1.0, -2.0]], np.float32), FP32)) == bytes.fromhex("0000803f000000c0")
    assert bytes(pack(np.array([True, False]), BOOL)) == b"\x01\x00"
    assert bytes(pack(np.array([258], np.uint16), DATATYPES["UINT16"])) == b"\x02\x01"
    assert bytes(pack(np.array([1.0], ml_dtypes.bfloat16), DATATYPES["BF16"])) == b"\x80\x3f"
    assert bytes(pack(np.array(7, np.int64), DATATYPES["INT64"])) == b"\x07" + bytes(7)


def test_neither_direction_copies_what_already_lies_right() -> None:
    raw = bytes(range(16))
    array = unpack("x", FP32, (4,), 4, raw)
    assert np.shares_memory(array, np.frombuffer(raw, np.uint8))

    packed = pack(array, FP32)
    assert isinstance(packed, memoryview)
    assert np.shares_memory(np.frombuffer(packed, np.uint8), array)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2, 5)])
@pytest.mark.parametrize("datatype", list(DATATYPES.values()), ids=list(DATATYPES))
def test_empty_tensors(datatype: Any, shape: tuple[int, ...]) -> None:
    array = unpack("x", datatype, shape, 0, b"")

    assert (array.shape, array.dtype) == (shape, datatype.numpy)
    assert bytes(pack(array, datatype)) == b""


def test_a_view_at_an_odd_place_of_a_body_reads_right() -> None:
    body = memoryview(b"{" + np.array([1.5, -2.5], np.float32).tobytes())

    assert unpack("x", FP32, (2,), 2, body[1:]).tolist() == [1.5, -2.5]


@pytest.mark.parametrize("size", [0, 11, 13, 16])
def test_a_wrong_number_of_bytes_is_refused_with_both_numbers(size: int) -> None:
    message = refusal("img", FP32, (3,), 3, bytes(size))

    assert f"input byte size mismatch for input 'img'. Expected 12, got {size}" in message


def test_no_bool_is_neither_true_nor_false() -> None:
    truth = unpack("x", BOOL, (4,), 4, b"\x02\x00\xff\x01")

    assert truth.view(np.uint8).tolist() == [1, 0, 1, 1]


def test_bools_of_the_wrong_size_are_refused() -> None:
    assert "Expected 2, got 8" in refusal("flag", BOOL, (2,), 2, bytes(8))


# BYTES


@given(st.lists(st.binary(max_size=40), max_size=12))
def test_strings_come_back_byte_for_byte(values: list[bytes]) -> None:
    raw = b"".join(map(element, values))

    array = unpack("x", BYTES, (len(values),), len(values), raw)

    assert array.tolist() == values
    assert pack(array, BYTES) == raw


def test_text_is_packed_as_utf_8_and_counted_in_bytes() -> None:
    text = np.array(["\u00e9", "", "\u20ac\U0001f600"])

    assert pack(text, BYTES) == element(b"\xc3\xa9") + element(b"") + element("\u20ac\U0001f600".encode())
    assert pack(text.astype(np.dtypes.StringDType()), BYTES) == pack(text, BYTES)


def test_trailing_nul_bytes_are_part_of_a_string() -> None:
    assert unpack("x", BYTES, (1,), 1, element(b"a\0\0"))[0] == b"a\0\0"
    assert pack(strings(b"a\0\0"), BYTES) == element(b"a\0\0")


def test_strings_are_packed_row_by_row() -> None:
    grid = strings(b"a", b"b", b"c", b"d", shape=(2, 2))

    assert pack(np.asfortranarray(grid), BYTES) == b"".join(map(element, (b"a", b"b", b"c", b"d")))
    assert pack(grid.T, BYTES) == b"".join(map(element, (b"a", b"c", b"b", b"d")))
    raw = pack(grid, BYTES)
    assert unpack("x", BYTES, (2, 2), 4, raw).tolist() == [[b"a", b"b"], [b"c", b"d"]]


def test_empty_strings_and_no_strings() -> None:
    assert unpack("x", BYTES, (2,), 2, bytes(8)).tolist() == [b"", b""]
    assert unpack("x", BYTES, (1,), 1, bytes(4)).tolist() == [b""]
    assert unpack("x", BYTES, (0,), 0, b"").tolist() == []


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "expected 2 string elements for inference input 'names'"),
        (element(b"\xc3\xa9"), "expected 2 string elements for inference input 'names', but its 6 bytes cannot"),
        (element(b"abcdef") + b"\1\0", "incomplete string length indicator .* element 1 of 2 starts at byte 10"),
        (struct.pack("<I", 200) + b"ab" + element(b""), "incomplete string data .* element 0 declares 200 bytes"),
        (element(b"ab") + struct.pack("<I", 5) + b"abcd", "element 1 declares 5 bytes, 4 are left"),
        (struct.pack(">I", 2) + b"ab" + struct.pack(">I", 0), "element 0 declares 33554432 bytes.*little-endian"),
        (struct.pack("<I", 0xFFFFFFFF) + b"abcd", "element 0 declares 4294967295 bytes"),
        (element(b"a") + element(b"b") + b"\0\0\0", "incomplete string length indicator .*only 3 bytes available"),
        (b"".join(map(element, (b"a", b"b", b"c"))), "unexpected number of string elements 3 .*'names', expecting 2"),
    ],
)
def test_malformed_strings_are_refused_where_they_go_wrong(raw: bytes, words: str) -> None:
    assert re.search(words, refusal("names", BYTES, (2,), 2, raw))


def test_a_shape_that_lies_allocates_nothing() -> None:
    count = 2**40

    assert f"expected {count} string elements" in refusal("x", BYTES, (count,), count, element(b"a"))
    assert f"Expected {count * 4}, got 4" in refusal("x", FP32, (count,), count, bytes(4))


@given(st.binary(max_size=64), st.integers(0, 8))
def test_any_bytes_are_either_these_strings_or_refused(raw: bytes, count: int) -> None:
    try:
        array = unpack("x", BYTES, (count,), count, raw)
    except ServeError:
        return
    assert pack(array, BYTES) == raw
