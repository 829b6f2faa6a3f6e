"""Outputs of Python models that say the same in another form, and those that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bident.engine.merge import Merge
from bident.errors import Code, ServeError
from tests.unit.engine.engine_fakes import (
    BATCHING,
    IO,
    model_config,
)

OUTPUTS = """
output [ { name: "F", data_type: TYPE_FP32, dims: [ 2 ] } ]
output [ { name: "I", data_type: TYPE_INT8, dims: [ 1 ] } ]
output [ { name: "V", data_type: TYPE_FP32, dims: [ -1 ] } ]
"""
LENIENT = IO.partition("output")[0] + OUTPUTS


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("F", np.array([[1.5, 2]] * 3), [[1.5, 2]] * 3),
        ("F", np.array([[np.inf, -np.inf]] * 3), [[np.inf, -np.inf]] * 3),
        ("F", np.ones(6, np.float32), [[1, 1]] * 3),
        ("F", np.ones((3, 1, 2), np.float32), [[1, 1]] * 3),
        ("I", np.array([1, -2, 127]), [[1], [-2], [127]]),
        ("I", np.array([[1], [2], [3]], np.uint64), [[1], [2], [3]]),
        ("I", np.array([True, False, True]).view(np.int8), [[1], [0], [1]]),
        ("V", np.zeros((3, 0)), [[], [], []]),
    ],
)
def test_outputs_that_say_the_same_in_another_form_are_taken(name: str, given: Any, expected: Any) -> None:
    merge = Merge(model_config(BATCHING, io=LENIENT), lenient=True)
    (column,) = merge.scatter({name: given}, 3)
    assert column.array.tolist() == expected
    assert column.array.dtype == column.datatype.numpy


@pytest.mark.parametrize(
    ("name", "given", "found"),
    [
        ("F", np.ones((3, 2), np.int64), "has datatype INT64"),
        ("F", np.ones((2, 2), np.float32), "has shape [2, 2]"),
        ("F", np.array([[1e39, 1]] * 3), "has datatype FP64"),
        ("I", np.array([1, 2, 128]), "has datatype INT64"),
        ("I", np.array([1.0, 2, 3]), "has datatype FP64"),
        ("V", np.ones(6, np.float32), "has shape [6]"),
        ("V", [[1.0]], "is a list"),
    ],
)
def test_outputs_that_say_something_else_are_refused_with_both_names(name: str, given: Any, found: str) -> None:
    merge = Merge(model_config(BATCHING, io=LENIENT), lenient=True)
    with pytest.raises(ServeError, match="its config declares") as caught:
        merge.scatter({name: given}, 3)
    assert caught.value.code is Code.INTERNAL
    assert f"output '{name}' of model 'm' {found}" in caught.value.message


def test_other_models_outputs_are_taken_as_they_are_or_not_at_all() -> None:
    strict = Merge(model_config(BATCHING, io=LENIENT))
    for given in (np.array([[1.5, 2]] * 3), np.ones(6, np.float32)):
        with pytest.raises(ServeError, match="its config declares"):
            strict.scatter({"F": given}, 3)
