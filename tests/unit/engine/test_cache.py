"""What the response cache keeps, for how long, and which questions are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bident.engine.cache import ResponseCache, key_of
from bident.errors import ServeError
from bident.wire.datatypes import BYTES, DATATYPES, FP32, DataType
from bident.wire.infer import Column, InferRequest, InferResponse
from tests.unit.engine.engine_fakes import ask, tensor

OWNER = "m"


def response_of(*values: float, rows: int = 1) -> InferResponse:
    column = Column("Y", FP32, np.array([values] * rows, np.float32))
    return InferResponse("m", "1", "an id", [column], 0, -1)


def size_of_one() -> int:
    cache = ResponseCache(1 << 20)
    cache.insert(OWNER, b"key", response_of(1, 2))
    return cache.used


def values(cache: ResponseCache, key: bytes) -> list[Any] | None:
    entry = cache.lookup(OWNER, key)
    return None if entry is None else entry.columns()[0].array.tolist()


# Keeping


def test_what_was_used_longest_ago_goes_first() -> None:
    cache = ResponseCache(3 * size_of_one())
    for index in range(3):
        cache.insert(OWNER, b"%d" % index, response_of(index, index))
    assert cache.lookup(OWNER, b"0") is not None

    cache.insert(OWNER, b"3", response_of(3, 3))

    assert [values(cache, b"%d" % index) for index in range(4)] == [[[0, 0]], None, [[2, 2]], [[3, 3]]]
    assert cache.evictions == 1


def test_the_bound_holds_to_the_byte() -> None:
    one = size_of_one()
    cache = ResponseCache(2 * one - 1)
    for index in range(50):
        assert cache.insert(OWNER, b"%d" % index, response_of(index, index))
        assert cache.used == one <= cache.size
        assert cache.count == 1
    cache.forget(OWNER)
    assert (cache.used, cache.count) == (0, 0)


def test_an_answer_larger_than_the_cache_is_not_kept_and_costs_nobody_a_place() -> None:
    cache = ResponseCache(2 * size_of_one())
    cache.insert(OWNER, b"small", response_of(1, 2))

    assert not cache.insert(OWNER, b"large", response_of(1, 2, rows=10_000))

    assert values(cache, b"small") == [[1, 2]]
    assert cache.lookup(OWNER, b"large") is None


def test_strings_count_with_what_they_hold() -> None:
    column = Column("Y", BYTES, np.array([b"x" * 10_000, b"y"], object))
    cache = ResponseCache(1 << 20)

    cache.insert(OWNER, b"key", InferResponse("m", "1", "", [column], 0, -1))

    assert 10_000 < cache.used < 12_000


def test_an_entry_is_a_copy_of_its_rows_only() -> None:
    batch = np.arange(2_000, dtype=np.float32).reshape(1000, 2)
    cache = ResponseCache(1 << 20)

    cache.insert(OWNER, b"key", InferResponse("m", "1", "", [Column("Y", FP32, batch)], 1, 2))
    batch[:] = -1

    entry = cache.lookup(OWNER, b"key")
    assert entry is not None
    (column,) = entry.columns()
    assert column.array.tolist() == [[2, 3]]
    assert column.array.base is None
    with pytest.raises(ValueError, match="read-only"):
        column.array[:] = 0


def test_the_first_of_two_answers_to_the_same_question_stays() -> None:
    cache = ResponseCache(1 << 20)
    assert cache.insert(OWNER, b"key", response_of(1, 2))
    assert not cache.insert(OWNER, b"key", response_of(3, 4))
    assert values(cache, b"key") == [[1, 2]]
    assert cache.used == size_of_one()


def test_owners_have_entries_of_their_own() -> None:
    cache = ResponseCache(1 << 20)
    cache.insert(OWNER, b"key", response_of(1, 2))
    cache.insert("other", b"key", response_of(3, 4))

    cache.forget("other")

    assert values(cache, b"key") == [[1, 2]]
    assert cache.lookup("other", b"key") is None


def test_response_parameters_are_kept_and_the_request_id_is_not() -> None:
    cache = ResponseCache(1 << 20)
    response = response_of(1, 2)
    response.parameters = {"model_said": "yes"}
    cache.insert(OWNER, b"key", response)
    response.parameters["model_said"] = "no"

    entry = cache.lookup(OWNER, b"key")

    assert entry is not None
    assert entry.parameters == {"model_said": "yes"}
    assert "an id" not in repr(entry)


# Which questions are the same


def asked(data: Any, shape: tuple[int, ...], datatype: DataType = FP32, **attributes: Any) -> InferRequest:
    request = InferRequest("m", "", "", {"X": tensor("X", data, shape, datatype)}, 0)
    for name, value in attributes.items():
        setattr(request, name, value)
    return request


def test_json_and_binary_are_the_same_question() -> None:
    numbers = [0.1, -2.0, 1e10, 3.0]
    assert key_of(asked(numbers, (2, 2))) == key_of(asked(np.array(numbers, np.float32).reshape(2, 2), (2, 2)))
    strings = np.array([b"a", b""], object).reshape(1, 2)
    assert key_of(asked([b"a", b""], (1, 2), BYTES)) == key_of(asked(strings, (1, 2), BYTES))


def test_how_the_array_lies_in_memory_does_not_matter() -> None:
    array = np.arange(4, dtype=np.float32).reshape(2, 2)
    assert key_of(asked(array, (2, 2))) == key_of(asked(np.asfortranarray(array), (2, 2)))


@pytest.mark.parametrize(
    "other",
    [
        asked([1.0, 2.0], (2, 1)),
        asked([1.0, 2.5], (1, 2)),
        asked(np.array([[1.0, 2.0]], np.float32).view(np.int32), (1, 2), DATATYPES["INT32"]),
        asked([1.0, 2.0], (1, 2), outputs=["Y"]),
        asked([1.0, 2.0], (1, 2), parameters={"temperature": 1}),
        asked([1.0, 2.0], (1, 2), parameters={"temperature": "1"}),
        asked([1.0, 2.0], (1, 2), sequence_id=7),
        asked([1.0, 2.0], (1, 2), sequence_start=True),
    ],
)
def test_whatever_a_model_can_see_makes_another_question(other: InferRequest) -> None:
    assert key_of(other) != key_of(asked([1.0, 2.0], (1, 2)))


def test_strings_do_not_run_into_each_other() -> None:
    assert key_of(asked([b"ab", b"c"], (1, 2), BYTES)) != key_of(asked([b"a", b"bc"], (1, 2), BYTES))


def test_inputs_are_told_apart_by_name_and_not_by_order() -> None:
    def both(first: str, second: str) -> InferRequest:
        inputs = {name: tensor(name, [float(ord(name)), 0.0], (1, 2)) for name in (first, second)}
        return InferRequest("m", "", "", inputs, 0)

    swapped = both("A", "B")
    swapped.inputs["A"].data, swapped.inputs["B"].data = swapped.inputs["B"].data, swapped.inputs["A"].data

    assert key_of(both("A", "B")) == key_of(both("B", "A"))
    assert key_of(both("A", "B")) != key_of(swapped)


def test_the_id_the_priority_and_the_timeout_make_no_difference() -> None:
    other = ask(1, request_id="an id")
    other.priority, other.timeout_us, other.received_ns = 3, 500, 7
    assert key_of(ask(1)) == key_of(other)


def test_text_that_is_no_unicode_can_be_a_parameter() -> None:
    assert key_of(asked([1.0, 2.0], (1, 2), parameters={"\ud800": "\udfff"}))


def test_a_number_that_does_not_fit_is_refused_as_anywhere() -> None:
    with pytest.raises(ServeError, match="X"):
        key_of(asked([300], (1, 1), DATATYPES["UINT8"]))
