"""Requests, answers, and the small functions beside them."""

from __future__ import annotations

import numpy as np
import pytest

from bident.errors import Code, ServeError
from bident.wire.datatypes import BYTES, DATATYPES, FP32
from bident.wire.infer import Column, InferInput, InferRequest, InferResponse, element_count, is_addressable, zeros


def request() -> InferRequest:
    given = InferInput("x", FP32, (2,), 2, [1, 2])
    return InferRequest("m", "3", "r-1", {"x": given}, 5)


def test_what_a_client_does_not_say_is_not_set() -> None:
    asked = request()

    assert (asked.outputs, asked.parameters, asked.priority, asked.timeout_us) == (None, None, 0, 0)
    assert (asked.batch_size, asked.signature, asked.deadline_ns, asked.cancelled) == (1, None, 0, False)


def test_a_failure_says_whose_it_is() -> None:
    error = ServeError(Code.INTERNAL, "no")

    response = InferResponse.failure(request(), error)

    assert (response.model_name, response.model_version, response.id) == ("m", "3", "r-1")
    assert (response.error, response.outputs, response.final, response.parameters) == (error, [], True, None)


def test_an_answer_is_its_rows_of_the_batch_and_a_view_of_them() -> None:
    numbers = np.arange(12, dtype=np.float32).reshape(4, 3)
    words = np.array([b"a", b"b", b"c", b"d"], dtype=object)
    columns = [Column("n", FP32, numbers), Column("w", BYTES, words)]

    first, second = InferResponse("m", "1", "", columns, 1, 3).outputs

    assert (first.name, first.datatype, first.array.tolist()) == ("n", FP32, [[3, 4, 5], [6, 7, 8]])
    assert (second.name, second.datatype, second.array.tolist()) == ("w", BYTES, [b"b", b"c"])
    assert np.shares_memory(first.array, numbers)


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_an_answer_that_is_no_slice_has_the_whole_column(shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.float32)

    (output,) = InferResponse("m", "1", "", [Column("n", FP32, array)], 0, -1).outputs

    assert output.array is array


def test_element_counts_do_not_wrap() -> None:
    assert element_count(()) == 1
    assert element_count((2, 3, 4)) == 24
    assert element_count((5, 0, 2**63)) == 0
    assert element_count((2**32, 2**32)) == 2**64


@pytest.mark.parametrize("name", list(DATATYPES))
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 4)])
def test_zeros_of_every_datatype(name: str, shape: tuple[int, ...]) -> None:
    array = zeros(DATATYPES[name], shape)

    assert (array.shape, array.dtype) == (shape, DATATYPES[name].numpy)
    assert set(array.reshape(-1).tolist()) <= {b"" if name == "BYTES" else 0}


@pytest.mark.parametrize(
    ("shape", "possible"),
    [((), True), ((0,), True), ((2**40, 0), True), ((0, 2**62), False), ((2**64, 0), False), ((2**62,), False)],
)
def test_even_an_empty_array_has_bounds(shape: tuple[int, ...], possible: bool) -> None:
    assert is_addressable(shape) is possible
    if possible:
        for datatype in DATATYPES.values():
            assert np.zeros(0, datatype.numpy).reshape(shape if 0 in shape else (0,)).size == 0
