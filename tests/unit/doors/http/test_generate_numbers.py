"""One number of every datatype, as whoever computed it hands it over, in a generate answer."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bident.doors.http.generate_response import encode
from bident.wire.datatypes import BYTES, DATATYPES, from_numpy
from bident.wire.infer import Column, InferResponse

LONGLONG = np.dtype(np.longlong)
"""What ONNX Runtime makes of INT64: equal to numpy's int64, and another type all the same."""


@pytest.mark.parametrize(
    "dtype", [*(datatype.numpy for datatype in DATATYPES.values() if datatype is not BYTES), LONGLONG]
)
def test_a_single_number_of_any_datatype_is_written(dtype: np.dtype) -> None:
    datatype = from_numpy(dtype)
    assert datatype is not None
    response = InferResponse("m", "1", "", [Column("Y", datatype, np.ones((1, 1), dtype))], 0, -1)
    assert json.loads(encode(response))["Y"] == 1
