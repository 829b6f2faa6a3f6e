"""Shapes that are empty and vast at once: the client's mistake, never the server's."""

from __future__ import annotations

import json

import pytest

from bident.doors.http.v2_request import parse
from bident.engine.shared_memory import SharedMemory
from bident.errors import Code, ServeError

NO_MEMORY = SharedMemory(allowed=False)


def body(shape: list[int], *, binary: bool) -> tuple[bytes, int | None]:
    tensor: dict[str, object] = {"name": "x", "datatype": "FP32", "shape": shape}
    tensor |= {"parameters": {"binary_data_size": 0}} if binary else {"data": []}
    document = json.dumps({"inputs": [tensor]}).encode()
    return document, len(document) if binary else None


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("shape", [[0, 2**63], [1, 0, 2**62], [2**61, 0], [0, 2**31, 2**31], [0, 2**70]])
def test_an_empty_tensor_of_a_vast_shape_is_refused(shape: list[int], binary: bool) -> None:
    document, header_length = body(shape, binary=binary)

    with pytest.raises(ServeError) as caught:
        parse(("m", ""), document, header_length, 0, NO_MEMORY)

    assert caught.value.code is Code.INVALID_ARG


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("shape", [[0], [3, 0], [0, 2**40], [0, 0]])
def test_an_empty_tensor_of_a_thinkable_shape_is_taken(shape: list[int], binary: bool) -> None:
    document, header_length = body(shape, binary=binary)

    request, _ = parse(("m", ""), document, header_length, 0, NO_MEMORY)

    assert request.inputs["x"].shape == tuple(shape)
    assert len(request.inputs["x"].data) == (shape[0] if binary else 0)
