"""The best entries of an output, as Triton writes them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from bident.doors.classification import MAX_ELEMENTS, classify
from bident.errors import Code, ServeError
from bident.wire.datatypes import BYTES, DATATYPES, from_numpy
from bident.wire.infer import InferOutput


def best(
    array: np.ndarray, classes: int, labels: list[str] | None = None, *, batched: bool = True
) -> list[bytes] | list[list[bytes]]:
    datatype = from_numpy(array.dtype)
    assert datatype is not None
    output = classify(InferOutput("scores", datatype, array), classes, labels, batched=batched)
    assert (output.name, output.datatype, output.array.dtype) == ("scores", BYTES, np.dtype(object))
    entries: list[list[bytes]] = output.array.tolist()
    return entries


def floats(*values: float) -> np.ndarray:
    return np.array([values], np.float32)


def test_the_largest_come_first_with_their_index_in_six_decimals() -> None:
    assert best(floats(0.1, 0.7, 0.2), 2) == [[b"0.700000:1", b"0.200000:2"]]


def test_each_row_of_a_batch_is_an_item_of_its_own() -> None:
    array = np.array([[1, 2, 3], [9, 8, 7]], np.float32)

    assert best(array, 1) == [[b"3.000000:2"], [b"9.000000:0"]]


def test_without_a_batch_the_whole_tensor_is_one_item() -> None:
    assert best(np.array([1, 3, 2], np.float32), 2, batched=False) == [b"3.000000:1", b"2.000000:2"]
    assert best(np.array([[1, 3], [2, 0]], np.float32), 1, batched=False) == [b"3.000000:1"]
    assert best(np.array(5, np.float32), 3, batched=False) == [b"5.000000:0"]


def test_items_of_several_dimensions_are_flattened_row_by_row() -> None:
    array = np.arange(12, dtype=np.float32).reshape(2, 3, 2)

    assert best(array, 1) == [[b"5.000000:5"], [b"11.000000:5"]]


def test_more_classes_than_there_are_is_all_there_are() -> None:
    assert best(floats(1, 2), 99) == [[b"2.000000:1", b"1.000000:0"]]
    assert best(floats(1, 2), 2**70) == [[b"2.000000:1", b"1.000000:0"]]


def test_labels_follow_where_there_are_any() -> None:
    assert best(floats(1, 3, 2), 3, ["cat", "d\u00f6g"]) == [
        [b"3.000000:1:d\xc3\xb6g", b"2.000000:2", b"1.000000:0:cat"]
    ]
    assert best(floats(1), 1, []) == [[b"1.000000:0"]]
    assert best(floats(1, 2), 2, ["", "dog"]) == [[b"2.000000:1:dog", b"1.000000:0"]]


@pytest.mark.parametrize("name", [name for name in DATATYPES if "INT" in name])
def test_integers_are_written_as_integers_and_their_limits_are_ordered(name: str) -> None:
    bounds = np.iinfo(DATATYPES[name].numpy)
    array = np.array([[7, bounds.min, bounds.max]], DATATYPES[name].numpy)

    assert best(array, 3) == [[f"{bounds.max}:2".encode(), b"7:0", f"{bounds.min}:1".encode()]]


def test_doubles_are_ordered_by_what_floats_cannot_tell_apart() -> None:
    assert best(np.array([[1.0, 1.0 + 2**-40]]), 2) == [[b"1.000000:1", b"1.000000:0"]]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_among_equals_the_lower_index_comes_first(dtype: type) -> None:
    entries = best(np.array([[5, 1, 5, 5]], dtype), 4)[0]

    assert [bytes(entry).split(b":")[1] for entry in entries] == [b"0", b"2", b"3", b"1"]


def test_what_is_no_number_comes_last() -> None:
    assert best(floats(np.nan, -np.inf, np.inf, 0), 4) == [
        [b"inf:2", b"0.000000:3", b"-inf:1", b"nan:0"],
    ]


@pytest.mark.parametrize("rows", [1, 3])
def test_items_without_entries_have_no_best(rows: int) -> None:
    assert best(np.zeros((rows, 0), np.float32), 2) == [[]] * rows
    assert best(np.zeros((0,), np.float32), 2, batched=False) == []


@pytest.mark.parametrize(
    "array",
    [
        np.array([[b"a"]], dtype=object),
        np.array([[True]]),
        np.array([[1]], np.float16),
        np.array([[1]], ml_dtypes.bfloat16),
    ],
)
def test_datatypes_that_cannot_be_ranked_are_refused(array: np.ndarray) -> None:
    with pytest.raises(ServeError, match="class result not available for output due to unsupported type") as caught:
        best(array, 1)
    assert caught.value.code is Code.INVALID_ARG


def test_very_large_outputs_are_refused() -> None:
    with pytest.raises(ServeError, match="classification output tensor too large"):
        best(np.zeros((1, MAX_ELEMENTS + 1), np.int8), 1)
    assert best(np.zeros((1, MAX_ELEMENTS), np.int8), 1) == [[b"0:0"]]


@given(
    array=st_numpy.arrays(np.int16, st_numpy.array_shapes(min_dims=2, max_dims=2, max_side=8)),
    classes=st.integers(1, 10),
    signed=st.booleans(),
)
def test_the_answer_is_what_sorting_says(array: np.ndarray, classes: int, signed: bool) -> None:
    scores = array.astype(np.float32) if signed else array.view(np.uint16)
    expected = [
        [
            (f"{row[index]:f}" if signed else str(row[index])).encode() + b":%d" % index
            for index in sorted(range(len(row)), key=lambda index: (-row[index], index))[:classes]
        ]
        for row in scores.tolist()
    ]

    assert best(scores, classes) == expected
