"""Tensors to a request and from an answer, in JSON and in binary."""

from __future__ import annotations

import json
from email.message import Message
from http.client import HTTPMessage
from typing import Any

import numpy as np
import pytest

from bident.client import Reply
from bident.client.infer import as_json, datatype_of, decode
from bident.errors import Code, ServeError


def reply(body: dict[str, Any] | bytes, binary: bytes = b"") -> Reply:
    head = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = HTTPMessage()
    if binary:
        Message.__setitem__(headers, "Inference-Header-Content-Length", str(len(head)))
    return Reply(200, headers, head + binary)


def output(name: str, datatype: str, shape: list[int], **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, **more}


def test_json_and_binary_outputs_in_one_answer() -> None:
    raw = np.array([1.5, -2], np.float32).tobytes()
    body = {
        "outputs": [
            output("a", "FP32", [2, 1], parameters={"binary_data_size": 8}),
            output("b", "BYTES", [1], data=["ü"]),
            output("c", "UINT8", [0], data=[]),
            output("d", "BYTES", [1], parameters={"binary_data_size": 6}),
        ]
    }
    answered, tensors = decode(reply(body, raw + b"\x02\0\0\0hi"))
    assert answered == body
    assert tensors["a"].tolist() == [[1.5], [-2]]
    assert tensors["b"].tolist() == ["ü".encode()]
    assert tensors["c"].dtype == np.uint8
    assert tensors["d"].tolist() == [b"hi"]


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"<html>"),
        reply({}),
        reply({"outputs": [output("a", "FP99", [1], data=[1])]}),
        reply({"outputs": [output("a", "FP32", [3], data=[1])]}),
        reply({"outputs": [output("a", "FP32", [3], parameters={"binary_data_size": 12})]}, b"short"),
    ],
)
def test_what_is_not_an_answer(answer: Reply) -> None:
    with pytest.raises(ServeError, match="not a v2 infer response") as caught:
        decode(answer)
    assert caught.value.code is Code.INTERNAL


def test_a_request_in_json() -> None:
    tensors = {"n": np.array([[1, 2]], np.int16), "s": np.array(["é".encode()], object), "b": np.array([True])}
    assert as_json(tensors)["inputs"] == [
        {"name": "n", "shape": [1, 2], "datatype": "INT16", "data": [1, 2]},
        {"name": "s", "shape": [1], "datatype": "BYTES", "data": ["é"]},
        {"name": "b", "shape": [1], "datatype": "BOOL", "data": [True]},
    ]


def test_numpy_types_without_a_datatype() -> None:
    with pytest.raises(ServeError, match="tensor 'x' is of numpy type complex128"):
        datatype_of("x", np.zeros(1, complex))
