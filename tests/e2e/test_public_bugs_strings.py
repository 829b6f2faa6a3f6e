"""What people report of text in requests: empty strings, encodings, length prefixes, base64, request ids."""

from __future__ import annotations

import json
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
from asking import Asker, tensor, x

PHI_EURO_GRIN = "ф€\U0001f600"


def counted(*elements: bytes) -> bytes:
    """BYTES elements as the binary extension has them."""
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


# Empty strings: a tensor of them looks like no bytes at all.


def test_strings_that_are_all_empty_come_back(ask: Asker) -> None:
    assert ask.infer("bytes", x("BYTES", ["", ""])).data() == ["", ""]


def test_a_string_tensor_without_elements_comes_back_empty(ask: Asker) -> None:
    output = ask.infer("bytes", x("BYTES", [])).output()
    assert (output["shape"], output["data"]) == ([0], [])


def test_a_string_that_is_announced_but_not_sent_is_refused(ask: Asker) -> None:
    ask.infer("bytes", x("BYTES", [], [1])).refused("input 'X'", "1 elements", "0 in 'data'")


def test_one_empty_string_in_binary_is_four_zero_bytes(ask: Asker) -> None:
    answer = ask.infer_binary("bytes", [tensor("X", "BYTES", [1], binary_data_size=4)], b"\0\0\0\0")
    assert answer.data() == [""]


# Text that is not ASCII, on a server that runs in the C locale.


@pytest.mark.parametrize("model", ["bytes", "onnx_bytes"])
def test_text_beyond_ascii_comes_back_unharmed(ask: Asker, model: str) -> None:
    for escape in (True, False):
        body = json.dumps({"inputs": [x("BYTES", [PHI_EURO_GRIN])]}, ensure_ascii=escape)
        assert ask.infer_text(model, body).data() == [PHI_EURO_GRIN]


def test_half_a_surrogate_pair_is_no_text(ask: Asker) -> None:
    ask.infer_text("bytes", r'{"inputs":[{"name":"X","shape":[1],"datatype":"BYTES","data":["\ud800"]}]}').refused(
        "failed to parse the request JSON"
    )


def test_a_body_that_is_not_utf8_is_refused(ask: Asker) -> None:
    body = b'{"inputs":[{"name":"X","shape":[1],"datatype":"BYTES","data":["\xff"]}]}'
    ask.infer_text("bytes", body).refused("failed to parse the request JSON")


def test_output_that_is_not_utf8_cannot_be_json_and_the_error_says_what_to_ask_for(ask: Asker) -> None:
    raw = counted(b"\xff\xfe")
    given = tensor("X", "BYTES", [1], binary_data_size=len(raw))
    ask.infer_binary("bytes", [given], raw).refused("output 'Y'", "not UTF-8", '"binary_data": true')
    wanted = [{"name": "Y", "parameters": {"binary_data": True}}]
    assert ask.infer_binary("bytes", [given], raw, outputs=wanted).binary == raw


def test_bytes_for_an_onnx_model_must_be_utf8_which_the_error_explains(ask: Asker) -> None:
    raw = counted(b"fine", b"\xff\xfe")
    given = tensor("X", "BYTES", [2], binary_data_size=len(raw))
    ask.infer_binary("onnx_bytes", [given], raw).refused("input 'X'", "element 1", "not valid UTF-8")


# The four bytes before each element: little-endian, counting bytes and not characters.


def test_the_length_counts_bytes_not_characters(ask: Asker) -> None:
    raw = counted("é".encode(), b"")
    assert raw[:4] == b"\x02\0\0\0"
    answer = ask.infer_binary("bytes", [tensor("X", "BYTES", [2], binary_data_size=len(raw))], raw)
    assert answer.data() == ["é", ""]


@pytest.mark.parametrize(
    ("raw", "fragments"),
    [
        (counted(b"ok") + struct.pack("<I", 200) + b"ab", ["element 1 declares 200 bytes", "2 are left"]),
        (struct.pack(">I", 2) + b"ab" + counted(b""), ["element 0 declares 33554432 bytes", "little-endian"]),
        (counted(b"ab", b"c") + b"xyz", ["incomplete string length", "only 3 bytes available", "after its 2 elements"]),
        (struct.pack("<I", 0xFFFFFFFF) + b"abcdefgh", ["element 0 declares 4294967295 bytes", "8 are left"]),
        (counted(b"abcd") + b"\0\0", ["element 1 of 2", "incomplete string length"]),
        (b"a\0b\0", ["cannot hold that many"]),
        (b"", ["2 string elements", "0 bytes"]),
    ],
    ids=["prefix-too-large", "big-endian", "stray-bytes", "prefix-of-4-GiB", "half-a-prefix", "NULs", "nothing"],
)
def test_length_prefixes_that_lie_are_refused_by_element(ask: Asker, raw: bytes, fragments: list[str]) -> None:
    given = tensor("X", "BYTES", [2], binary_data_size=len(raw))
    ask.infer_binary("bytes", [given], raw).refused("input 'X'", *fragments)


# Images as base64, which TensorFlow Serving decodes and v2 does not.


def test_a_base64_object_is_refused_with_the_way_to_send_bytes(ask: Asker) -> None:
    ask.infer("bytes", x("BYTES", [{"b64": "AAEC"}])).refused("input 'X'", "no base64", "binary tensor extension")


def test_base64_text_is_delivered_as_the_text_it_is(ask: Asker) -> None:
    answer = ask.infer("bytes", x("BYTES", ["AAEC"]), outputs=[{"name": "Y", "parameters": {"binary_data": True}}])
    assert answer.binary == counted(b"AAEC")


# The id: dropped, replaced, or null in the answer.


@pytest.mark.parametrize("request_id", ["r-é-1", 'quote " and \\', "x" * 10_000], ids=["accent", "quote", "10 kB"])
def test_an_id_comes_back_exactly(ask: Asker, request_id: str) -> None:
    assert ask.infer("fp32", x("FP32", [1]), id=request_id).json["id"] == request_id
    binary = ask.infer("fp32", x("FP32", [1]), id=request_id, parameters={"binary_data_output": True})
    assert json.loads(binary.body[: int(binary.headers["inference-header-content-length"])])["id"] == request_id


@pytest.mark.parametrize("given", [{}, {"id": ""}], ids=["absent", "empty"])
def test_no_id_is_answered_by_no_id_and_never_by_null(ask: Asker, given: dict[str, str]) -> None:
    assert "id" not in ask.infer("fp32", x("FP32", [1]), **given).json


@pytest.mark.parametrize("request_id", [7, None, ["a"]])
def test_an_id_that_is_no_string_is_refused(ask: Asker, request_id: object) -> None:
    ask.infer("fp32", x("FP32", [1]), id=request_id).refused("'id'", "non-string as string")


def test_an_error_names_the_request_that_had_it(ask: Asker) -> None:
    ask.infer("rows", x("FP32", [1, 2, 3]), id="r-é-1").refused("[request id: r-é-1] ")
    ask.infer("rows", x("FP32", [1, 2, 3])).refused("[request id: <id_unknown>] ")


def test_the_same_id_twice_at_once_keeps_each_answer_with_its_question(ask: Asker) -> None:
    def question(number: int) -> tuple[str, list[float]]:
        answer = ask.infer("rows", x("FP32", [number] * 3, [1, 3]), id="same")
        return answer.json["id"], answer.data()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(question, range(64)))
    assert answers == [("same", [float(number)] * 3) for number in range(64)]
