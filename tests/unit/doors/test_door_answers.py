"""Which answers take long to write, and what is kept of those that have been written."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from bident.doors import answers
from bident.doors.answers import takes_long, template_of
from bident.engine.shared_memory import SharedMemory
from bident.wire.datatypes import BYTES, FP32, DataType
from bident.wire.infer import Column, InferResponse
from tests.shared_objects import SharedObject


def response_of(*columns: Column, start: int = 0, stop: int = -1) -> InferResponse:
    return InferResponse("m", "1", "", columns, start, stop)


def column(datatype: DataType, shape: tuple[int, ...], name: str = "Y") -> Column:
    return Column(name, datatype, np.zeros(shape, datatype.numpy))


def described(response: InferResponse) -> list[tuple[str, tuple[int, ...]]]:
    return [(output.name, output.array.shape) for output in response.outputs]


def test_many_strings_take_long() -> None:
    many = column(BYTES, (4, 4000))
    assert takes_long(response_of(many))
    assert not takes_long(response_of(many, start=0, stop=1))
    assert takes_long(response_of(many, start=0, stop=3))
    assert not takes_long(response_of(column(BYTES, (4, 2500))))


def test_numbers_take_long_where_they_are_classified() -> None:
    numbers = response_of(column(FP32, (4, 4000)))
    assert not takes_long(numbers)
    assert not takes_long(numbers, {"Z": 1}.get)
    assert not takes_long(numbers, {"Y": 0}.get)
    assert takes_long(numbers, {"Y": 1}.get)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no POSIX shared memory")
def test_much_that_goes_to_shared_memory_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "COPY_HERE", 64_000)
    with SharedObject(64) as made:
        memory = SharedMemory(allowed=True)
        memory.register_system("r", made.key, 0, made.size)
        wanted = {"Y": memory.view("r", 0, 64)}
        assert takes_long(response_of(column(FP32, (4, 4001))), wanted.get)
        assert not takes_long(response_of(column(FP32, (4, 4000))), wanted.get)
        assert not takes_long(response_of(column(FP32, (4, 4001)), start=0, stop=3), wanted.get)
        assert takes_long(response_of(column(BYTES, (4, 4000))), wanted.get)


def test_a_template_is_made_once_for_answers_that_look_the_same() -> None:
    templates: dict[object, list[tuple[str, tuple[int, ...]]]] = {}
    one, other = column(FP32, (4, 2), "ONE"), column(FP32, (4, 2), "OTHER")
    for response in (
        response_of(one, other),
        response_of(other, one),  # in the order in which the request names them
        response_of(one),
        response_of(other),
        response_of(one, start=1, stop=3),
        response_of(column(FP32, (2, 2), "ONE")),
        response_of(one, start=0, stop=4),
        response_of(),
    ):
        assert template_of(templates, response, described) == described(response)
    assert len(templates) == 6


def test_templates_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_TEMPLATES", 8)
    templates: dict[object, list[tuple[str, tuple[int, ...]]]] = {}
    for size in range(30):
        response = response_of(column(FP32, (size,)))
        assert template_of(templates, response, described) == described(response)
        assert len(templates) <= 8
