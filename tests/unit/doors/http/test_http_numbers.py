"""Property: an identity model gives back exactly the numbers it was sent, in every form v2 has for them."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from http_line import Answer, post
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bident.wire.datatypes import DATATYPES

NUMBERS = sorted(set(DATATYPES) - {"BYTES"})


@dataclass(frozen=True)
class Tensor:
    datatype: str
    shape: tuple[int, int]
    raw: bytes
    """The elements, row-major and little-endian; for BYTES each with its length."""

    @property
    def array(self) -> NDArray[Any]:
        return np.frombuffer(self.raw, DATATYPES[self.datatype].numpy)

    @property
    def values(self) -> list[Any]:
        """The elements as JSON has them."""
        if self.datatype == "BYTES":
            return [item.decode() for item in unpacked(self.raw)]
        return self.array.astype(np.float64).tolist() if "F" in self.datatype else self.array.tolist()


def unpacked(raw: bytes) -> list[bytes]:
    items, at = [], 0
    while at < len(raw):
        (size,) = struct.unpack_from("<I", raw, at)
        items.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    return items


def packed(items: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(item)) + item for item in items)


SHAPES = st.tuples(st.integers(0, 6), st.integers(0, 6))


@st.composite
def number_tensors(draw: st.DrawFn, *, finite: bool) -> Tensor:
    datatype = draw(st.sampled_from(NUMBERS))
    shape = draw(SHAPES)
    count = shape[0] * shape[1]
    element = DATATYPES[datatype]
    raw = draw(st.binary(min_size=count * element.size, max_size=count * element.size))
    if datatype == "BOOL":
        raw = bytes(byte & 1 for byte in raw)
    elif finite and "F" in datatype:
        array = np.frombuffer(raw, element.numpy)
        with np.errstate(invalid="ignore"):  # signalling NaNs
            raw = np.where(np.isfinite(array), array, np.array(-0.5, element.numpy)).astype(element.numpy).tobytes()
    return Tensor(datatype, shape, raw)


@st.composite
def byte_tensors(draw: st.DrawFn, *, text: bool) -> Tensor:
    shape = draw(SHAPES)
    count = shape[0] * shape[1]
    item = st.text(max_size=8).map(str.encode) if text else st.binary(max_size=8)
    return Tensor("BYTES", shape, packed(draw(st.lists(item, min_size=count, max_size=count))))


JSON_TENSORS = st.one_of(number_tensors(finite=True), byte_tensors(text=True))
ALL_TENSORS = st.one_of(number_tensors(finite=False), byte_tensors(text=False))


def nested(values: list[Any], shape: tuple[int, int]) -> list[Any]:
    return [values[row * shape[1] : (row + 1) * shape[1]] for row in range(shape[0])]


def document(tensor: Tensor, **more: Any) -> dict[str, Any]:
    return {"name": "X", "datatype": tensor.datatype, "shape": tensor.shape, **more}


def json_request(tensor: Tensor, form: str, *, binary_answer: bool, padding: int) -> bytes:
    data = tensor.values if form == "flat" else nested(tensor.values, tensor.shape)
    body: dict[str, Any] = {"inputs": [document(tensor, data=data)]}
    if binary_answer:
        body["outputs"] = [{"name": "Y", "parameters": {"binary_data": True}}]
    text = json.dumps(body, ensure_ascii=False).encode()
    return post(f"/v2/models/{tensor.datatype.lower()}/infer", text + b" " * padding)


def binary_request(tensor: Tensor, *, binary_answer: bool) -> bytes:
    head = json.dumps(
        {
            "inputs": [document(tensor, parameters={"binary_data_size": len(tensor.raw)})],
            "parameters": {"binary_data_output": binary_answer},
        }
    ).encode()
    path = f"/v2/models/{tensor.datatype.lower()}/infer"
    return post(path, head + tensor.raw, f"Inference-Header-Content-Length: {len(head)}")


def binary_output(answer: Answer, tensor: Tensor) -> bytes:
    # Without a single byte in the binary part there is none, as with Triton.
    size = int(answer.headers.get(b"inference-header-content-length", len(answer.body)))
    (output,) = json.loads(answer.body[:size])["outputs"]
    assert (output["name"], output["datatype"], tuple(output["shape"])) == ("Y", tensor.datatype, tensor.shape)
    assert output["parameters"] == {"binary_data_size": len(answer.body) - size}
    return answer.body[size:]


def json_output(answer: Answer, tensor: Tensor) -> list[Any]:
    (output,) = json.loads(answer.body)["outputs"]
    assert (output["name"], output["datatype"], tuple(output["shape"])) == ("Y", tensor.datatype, tensor.shape)
    return output["data"]  # type: ignore[no-any-return]


def check_json_output(answer: Answer, tensor: Tensor) -> None:
    data = json_output(answer, tensor)
    if "F" not in tensor.datatype:
        assert data == tensor.values
        return
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(tensor.array)
    assert [value is not None for value in data] == finite.tolist(), "NaN and infinities are null"
    given = np.array([0 if value is None else value for value in data]).astype(tensor.array.dtype)
    # Bit for bit, which also tells -0.0 from 0.0.
    assert given[finite].tobytes() == tensor.array[finite].tobytes()


@given(JSON_TENSORS, st.sampled_from(["flat", "nested"]), st.booleans(), st.sampled_from([0, 20_000]))
@settings(deadline=None, max_examples=200)
def test_numbers_sent_as_json(door: Any, tensor: Tensor, form: str, binary_answer: bool, padding: int) -> None:
    answer = door.ask(json_request(tensor, form, binary_answer=binary_answer, padding=padding))
    assert answer.status == 200, answer.body
    if binary_answer:
        assert binary_output(answer, tensor) == tensor.raw
    else:
        check_json_output(answer, tensor)


@given(ALL_TENSORS)
@settings(deadline=None, max_examples=150)
def test_numbers_sent_and_asked_for_as_bytes(door: Any, tensor: Tensor) -> None:
    answer = door.ask(binary_request(tensor, binary_answer=True))
    assert answer.status == 200, answer.body
    assert binary_output(answer, tensor) == tensor.raw


@given(st.one_of(number_tensors(finite=False), byte_tensors(text=True)))
@settings(deadline=None, max_examples=150)
def test_numbers_sent_as_bytes_and_asked_for_as_json(door: Any, tensor: Tensor) -> None:
    answer = door.ask(binary_request(tensor, binary_answer=False))
    assert answer.status == 200, answer.body
    check_json_output(answer, tensor)


@given(st.integers(-(2**70), 2**70), st.sampled_from([word for word in NUMBERS if "INT" in word]))
@settings(deadline=None, max_examples=150)
@pytest.mark.parametrize("padding", [0, 20_000])
def test_an_integer_comes_back_as_it_is_or_not_at_all(door: Any, padding: int, value: int, word: str) -> None:
    tensor = Tensor(word, (1, 1), b"")
    body = json.dumps({"inputs": [document(tensor, data=[value])]}).encode() + b" " * padding
    answer = door.ask(post(f"/v2/models/{word.lower()}/infer", body))
    bounds = np.iinfo(DATATYPES[word].numpy)
    if bounds.min <= value <= bounds.max:
        assert json_output(answer, tensor) == [value]
    else:
        assert answer.status == 400
        assert isinstance(json.loads(answer.body)["error"], str)


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["FP16", "FP32", "FP64", "BF16"]))
@settings(deadline=None, max_examples=150)
@pytest.mark.parametrize("padding", [0, 20_000])
def test_a_float_is_rounded_to_the_nearest_or_refused(door: Any, padding: int, value: float, word: str) -> None:
    tensor = Tensor(word, (1, 1), b"")
    body = json.dumps({"inputs": [document(tensor, data=[value])]}).encode() + b" " * padding
    answer = door.ask(post(f"/v2/models/{word.lower()}/infer", body))
    with np.errstate(over="ignore"):
        nearest = np.array(value).astype(DATATYPES[word].numpy)
    if np.isfinite(nearest):
        (given,) = json_output(answer, tensor)
        assert np.array(given).astype(nearest.dtype).tobytes() == nearest.tobytes()
    else:
        assert answer.status == 400
        assert f"out of range for {word}" in json.loads(answer.body)["error"]


def test_the_largest_numbers_of_each_floating_datatype(door: Any) -> None:
    for word in ("FP16", "FP32", "FP64", "BF16"):
        largest = float(ml_dtypes.finfo(DATATYPES[word].numpy).max)
        tensor = Tensor(word, (1, 2), np.array([largest, -largest]).astype(DATATYPES[word].numpy).tobytes())
        check_json_output(door.ask(json_request(tensor, "flat", binary_answer=False, padding=0)), tensor)
