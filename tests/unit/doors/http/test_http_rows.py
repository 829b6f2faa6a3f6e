"""Answers that are some rows of a batch: valid JSON whatever the rows hold."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bident.doors.http.v2_response import encode_json
from bident.wire.datatypes import DATATYPES
from bident.wire.infer import Column, InferResponse


def answers(arrays: dict[str, np.ndarray], sizes: list[int]) -> list[Any]:
    servable: Any = SimpleNamespace(config=SimpleNamespace(outputs=arrays), json_templates={})
    columns = [Column(name, DATATYPES["INT32"], array.astype(np.int32)) for name, array in arrays.items()]
    found, start = [], 0
    for size in sizes:
        text = encode_json(InferResponse("m", "1", "", columns, start, start + size), servable)
        assert text is not None
        found.append([output["data"] for output in json.loads(text)["outputs"]])
        start += size
    return found


@pytest.mark.parametrize("item", [(0,), (0, 3), (3, 0)])
@pytest.mark.parametrize("sizes", [[2, 2], [1, 3], [1, 1, 1], [4, 1, 2]])
def test_rows_without_elements(sizes: list[int], item: tuple[int, ...]) -> None:
    rows = sum(sizes)
    numbers = np.arange(rows * 2).reshape(rows, 2)
    found = answers({"empty": np.zeros((rows, *item)), "full": numbers}, sizes)
    starts = np.cumsum([0, *sizes[:-1]])
    assert found == [
        [[], numbers[start : start + size].reshape(-1).tolist()] for start, size in zip(starts, sizes, strict=True)
    ]
