"""What people report of numbers in requests: silent casts, half precision, counts, shapes, hostile JSON."""

from __future__ import annotations

import json
import struct
import time
from typing import Any

import numpy as np
import pytest
from asking import Asker, tensor, x

# Half precision over JSON, which Triton refuses in both directions. Bident takes it (docs/differences.md).


@pytest.mark.parametrize(
    ("model", "data", "expected"),
    [
        ("fp16", [1.5, -0.0, 65504], [1.5, -0.0, 65504.0]),
        ("fp16", [65519.9, 2049, 1e-8], [65504.0, 2048.0, 0.0]),
        ("bf16", [1.0078125, 1.00390625, 1.01171875], [1.0078125, 1.0, 1.015625]),
    ],
    ids=["exact", "fp16-to-nearest-even", "bf16-to-nearest-even"],
)
def test_half_precision_travels_as_json(ask: Asker, model: str, data: list[float], expected: list[float]) -> None:
    answered = ask.infer(model, x(model.upper(), data)).data()
    assert answered == expected
    assert [np.signbit(value) for value in answered] == [np.signbit(value) for value in expected]


@pytest.mark.parametrize(("model", "value"), [("fp16", 70000), ("fp16", 65520), ("bf16", 3.5e38), ("fp16", -70000)])
def test_what_half_precision_cannot_hold_is_refused_not_infinite(ask: Asker, model: str, value: float) -> None:
    ask.infer(model, x(model.upper(), [0, value])).refused("input 'X'", "out of range", model.upper())


def test_half_precision_in_binary_keeps_every_bit(ask: Asker) -> None:
    raw = np.array([1.5, -0.0, np.inf], np.float16).tobytes()
    given = tensor("X", "FP16", [3], binary_data_size=6)
    wanted = [{"name": "Y", "parameters": {"binary_data": True}}]
    assert ask.infer_binary("fp16", [given], raw, outputs=wanted).binary == raw


# JSON made by pandas: floats that are whole, numbers in quotes, values too large.


@pytest.mark.parametrize("text", ["3.0", "1e3", '"3"', "true", "null", "1.5"])
def test_an_integer_is_written_as_an_integer(ask: Asker, text: str) -> None:
    body = f'{{"inputs":[{{"name":"X","shape":[1],"datatype":"INT64","data":[{text}]}}]}}'
    ask.infer_text("int64", body).refused("input 'X'", "INT64", "integers")


@pytest.mark.parametrize("text", ['"1.5"', "true", "null", '{"v":1}'])
def test_a_float_is_a_number_and_nothing_that_looks_like_one(ask: Asker, text: str) -> None:
    body = f'{{"inputs":[{{"name":"X","shape":[1],"datatype":"FP32","data":[{text}]}}]}}'
    ask.infer_text("fp32", body).refused("input 'X'", "FP32", "numbers")


def test_a_whole_number_is_a_float_too(ask: Asker) -> None:
    assert ask.infer("fp32", x("FP32", [1, 2.5, 16777217])).data() == [1.0, 2.5, 16777216.0]


@pytest.mark.parametrize(
    ("model", "value"),
    [
        ("fp32", 1e39),
        ("fp32", -1e39),
        ("uint8", 256),
        ("uint8", -1),
        ("int8", 128),
        ("int8", -129),
        ("uint16", 65536),
        ("int16", 32768),
        ("uint32", 2**32),
        ("int32", -(2**31) - 1),
        ("uint64", -1),
        ("int64", 2**63),
    ],
)
@pytest.mark.parametrize("count", [1, 2000, 5000], ids=["alone", "among-2000", "among-5000"])
def test_a_value_out_of_range_is_refused_not_wrapped(ask: Asker, model: str, value: float, count: int) -> None:
    data = [0] * (count - 1) + [value]
    ask.infer(model, x(model.upper(), data)).refused("input 'X'", "out of range", model.upper())


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ("uint8", [0, 255]),
        ("int8", [-128, 127]),
        ("uint16", [0, 65535]),
        ("int16", [-32768, 32767]),
        ("uint32", [0, 2**32 - 1]),
        ("int32", [-(2**31), 2**31 - 1]),
        ("uint64", [0, 2**64 - 1]),
        ("int64", [-(2**63), 2**63 - 1]),
    ],
)
@pytest.mark.parametrize("times", [1, 2000], ids=["small", "large"])
def test_the_extremes_of_every_integer_arrive_exactly(ask: Asker, model: str, data: list[int], times: int) -> None:
    assert ask.infer(model, x(model.upper(), data * times)).data() == data * times


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_does_not_have_is_refused_with_the_way_to_send_it(ask: Asker, word: str) -> None:
    ask.infer_text("fp32", f'{{"inputs":[{{"name":"X","shape":[1],"datatype":"FP32","data":[{word}]}}]}}').refused(
        "failed to parse the request JSON", "binary tensor extension"
    )


# Booleans: 0 and 1 in JSON, bytes that are neither in binary.


def test_booleans_are_true_and_false(ask: Asker) -> None:
    assert ask.infer("bool", x("BOOL", [True, False])).data() == [True, False]


@pytest.mark.parametrize("data", [[1, 0], ["true", False], [None, True]])
def test_what_only_looks_like_a_boolean_is_refused(ask: Asker, data: list[Any]) -> None:
    ask.infer("bool", x("BOOL", data)).refused("input 'X'", "BOOL", "true or false")


def test_a_binary_boolean_of_two_is_true_and_goes_on_as_one(ask: Asker) -> None:
    given = tensor("X", "BOOL", [2], binary_data_size=2)
    assert ask.infer_binary("bool", [given], b"\x02\x00").data() == [True, False]
    wanted = [{"name": "Y", "parameters": {"binary_data": True}}]
    assert ask.infer_binary("bool", [given], b"\x02\x00", outputs=wanted).binary == b"\x01\x00"


def test_booleans_of_four_bytes_each_are_refused(ask: Asker) -> None:
    given = tensor("X", "BOOL", [2], binary_data_size=8)
    ask.infer_binary("bool", [given], bytes(8)).refused("input 'X'", "Expected 2, got 8")


# Shape and data that disagree, for which Triton blames itself (500).


@pytest.mark.parametrize(
    ("data", "given"),
    [([1, 2, 3], 3), ([1, 2, 3, 4, 5], 5), ([[1, 2], [3]], 3), ([], 0)],
    ids=["too-few", "too-many", "ragged", "none"],
)
def test_data_that_do_not_fill_the_shape_are_the_clients_mistake(ask: Asker, data: list[Any], given: int) -> None:
    ask.infer("square", x("FP32", data, [2, 2])).refused(
        "input 'X'", "Shape does not match true shape", "4 elements", f"{given} in 'data'"
    )


@pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]], [[[1, 2]], [[3, 4]]]])
def test_flat_and_nested_data_mean_the_same(ask: Asker, data: list[Any]) -> None:
    output = ask.infer("square", x("FP32", data, [2, 2])).output()
    assert (output["shape"], output["data"]) == ([2, 2], [1.0, 2.0, 3.0, 4.0])


def test_data_that_are_no_array_are_refused(ask: Asker) -> None:
    ask.infer("square", x("FP32", 5, [1])).refused("input 'X'", "non-array as array")


# Sizes copied from metadata, where -1 means any.


@pytest.mark.parametrize(
    ("shape", "fragments"),
    [
        ([1, -1], ["invalid dimensions", "integer >= 0"]),
        ("-1", ["array of integers"]),
        ("[1,2]", ["array of integers"]),
        ([1.0], ["integer >= 0"]),
        (["1"], ["integer >= 0"]),
        ([True], ["integer >= 0"]),
        (None, ["array of integers"]),
        ([4294967296, 4294967296], ["exceed maximum size"]),
        ([2**63], ["exceed maximum size"]),
        ([10**30], ["'shape'"]),
    ],
    ids=str,
)
def test_a_shape_has_whole_numbers_and_no_wildcards(ask: Asker, shape: Any, fragments: list[str]) -> None:
    ask.infer("table", tensor("X", "FP32", shape, [1, 2])).refused("input 'X'", *fragments)


def test_a_shape_of_billions_with_two_values_allocates_nothing(ask: Asker) -> None:
    ask.infer("table", x("FP32", [1, 2], [4294967296, 3])).refused("12884901888 elements", "2 in 'data'")


def test_a_batching_model_needs_a_batch_dimension(ask: Asker) -> None:
    ask.infer("rows", x("FP32", [1], [])).refused("input 'X'", "batch dimension")


# JSON that means harm.


def test_arrays_nested_a_hundred_thousand_deep_are_refused_at_once(ask: Asker) -> None:
    body = '{"inputs":[{"name":"X","shape":[1],"datatype":"FP32","data":' + "[" * 100_000
    started = time.monotonic()
    ask.infer_text("fp32", body).refused("failed to parse the request JSON")
    ask.infer_text("fp32", body + "1" + "]" * 100_000 + "}]}").refused()
    assert time.monotonic() - started < 2


def test_arrays_nested_deeper_than_tensors_are_refused(ask: Asker) -> None:
    nested: Any = [1]
    for _ in range(200):
        nested = [nested]
    ask.infer("fp32", x("FP32", nested, [1])).refused()


def test_hundreds_of_thousands_of_parameters_are_answered_in_time(ask: Asker) -> None:
    names = {f"p{number}": number for number in range(300_000)}
    started = time.monotonic()
    answer = ask.infer("fp32", x("FP32", [1]), parameters=names)
    assert answer.status in (200, 400), answer.body[:200]
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("filler", ["", " " * 20_000], ids=["small", "large"])
def test_of_two_keys_of_one_name_the_last_counts(ask: Asker, filler: str) -> None:
    body = f'{{"inputs":[{{"name":"X","shape":[1],"shape":[2],"datatype":"FP32","data":[1,2]}}]{filler}}}'
    assert ask.infer_text("fp32", body).output()["shape"] == [2]


@pytest.mark.parametrize("filler", ["", " " * 20_000], ids=["small", "large"])
def test_garbage_after_the_object_is_refused(ask: Asker, filler: str) -> None:
    body = json.dumps({"inputs": [x("FP32", [1])]}) + filler + "garbage"
    ask.infer_text("fp32", body).refused("failed to parse the request JSON")


def test_a_byte_order_mark_is_overlooked(ask: Asker) -> None:
    body = b"\xef\xbb\xbf" + json.dumps({"inputs": [x("FP32", [1])]}).encode()
    assert ask.infer_text("fp32", body).data() == [1]


def test_an_empty_body_is_named(ask: Asker) -> None:
    ask.infer_text("fp32", "").refused("the body is empty")


@pytest.mark.parametrize("body", ["[]", "5", "null", '"text"'])
def test_a_body_that_is_no_object_is_refused(ask: Asker, body: str) -> None:
    ask.infer_text("fp32", body).refused("must be a JSON object")


# Bytes of binary tensors.


def test_binary_floats_come_back_bit_for_bit_even_nan(ask: Asker) -> None:
    raw = struct.pack("<3I", 0x7FC00001, 0xFF800000, 0x80000000)
    given = tensor("X", "FP32", [3], binary_data_size=12)
    wanted = [{"name": "Y", "parameters": {"binary_data": True}}]
    assert ask.infer_binary("fp32", [given], raw, outputs=wanted).binary == raw


@pytest.mark.parametrize("count", [1, 5000], ids=["small", "large"])
def test_an_integer_of_more_than_64_bits_is_the_clients_mistake(ask: Asker, count: int) -> None:
    ask.infer("uint64", x("UINT64", [0] * (count - 1) + [10**30])).refused()
