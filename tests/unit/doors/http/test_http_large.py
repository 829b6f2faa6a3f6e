"""Requests that are large where nobody expects it: refused in few words, read and answered beside the event loop."""

from __future__ import annotations

import gzip
import json
import threading
import time
from typing import Any

import pytest
from http_line import Answer, Line, chunked, get, post

from bident.doors.declared_tensors import MOST_ITEMS
from bident.doors.http import v2 as v2_module
from bident.doors.http.v2_json import LARGE_BODY
from bident.engine import memory
from bident.engine.stats import FailureReason

PADDING = b" " * LARGE_BODY
LARGE = pytest.mark.parametrize("padding", [b"", PADDING], ids=["small", "large"])


def error(answer: Answer) -> str:
    assert answer.status == 400, answer
    message: str = json.loads(answer.body)["error"]
    assert len(message) < 2000
    return message


def text(word: str, data: str, shape: str = "[1,1]", *, name: str = "X", more: str = "") -> bytes:
    tensor = f'{{"name":"{name}","datatype":"{word}","shape":{shape},"data":{data}}}'
    return f'{{"inputs":[{tensor}]{more}}}'.encode()


def ask(door: Any, word: str, body: bytes, *headers: str) -> Answer:
    answer: Answer = door.ask(post(f"/v2/models/{word.lower()}/infer", body, *headers))
    return answer


def binary(door: Any, word: str, shape: list[int], raw: bytes, **more: Any) -> Answer:
    tensor = {"name": "X", "datatype": word, "shape": shape, "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [tensor], **more}).encode()
    return ask(door, word, head + raw, f"Inference-Header-Content-Length: {len(head)}")


# Bounds


@LARGE
@pytest.mark.parametrize("what", ["input", "output"])
def test_a_vast_name_is_not_searched_for_nor_sent_back(door: Any, what: str, padding: bytes) -> None:
    name = "X" * 3_000_000
    more = f',"outputs":[{{"name":"{name}"}}]' if what == "output" else ""
    body = text("FP32", "[1]", name="X" if more else name, more=more)
    start = time.perf_counter()
    assert f"unexpected inference {what} 'XXXX" in error(ask(door, "FP32", padding + body))
    assert time.perf_counter() - start < 0.5


@pytest.mark.parametrize("body", [
    text("FP32", "[]", name="X" * 100_000),
    text("F" * 100_000, "[1]"),
    text("FP32", '"' + "x" * 100_000 + '"'),
    text("INT8", "[\"" + "x" * 100_000 + "\"]"),
    text("FP32", "[1]", "[" + "1," * 100_000 + "-1]"),
    text("FP32", "[1]", more=',"parameters":{"triton_' + "x" * 100_000 + '":1}'),
    text("FP32", "[1]", "[1,1,1]", more=',"id":"' + "x" * 100_000 + '"'),
])  # fmt: skip
def test_what_a_client_sent_is_quoted_in_part(door: Any, body: bytes) -> None:
    error(ask(door, "INT8" if b"INT8" in body else "FP32", body))


@LARGE
@pytest.mark.parametrize("what", ["inputs", "outputs"])
def test_more_inputs_or_outputs_than_any_model_has(door: Any, what: str, padding: bytes) -> None:
    body = json.dumps({"inputs": [], what: [{"name": f"X{number}"} for number in range(MOST_ITEMS + 1)]}).encode()
    assert f"more than {MOST_ITEMS} {what}" in error(ask(door, "FP32", padding + body))


@LARGE
def test_more_dimensions_than_arrays_have(door: Any, padding: bytes) -> None:
    shape = "[" + ",".join(["1"] * 65) + "]"
    assert "more than 64 dimensions" in error(ask(door, "FP32", padding + text("FP32", "[1]", shape)))
    assert "more than 64 dimensions" in error(binary(door, "FP32", [1] * 65, b"abcd"))
    assert "unexpected shape" in error(binary(door, "FP32", [1] * 64, b"abcd"))


@pytest.mark.parametrize(
    ("word", "element", "last", "message"),
    [
        ("FP32", "1.5", '"x"', "takes numbers, got 'x'"),
        ("INT8", "1", "1.5", "takes integers, got 1.5"),
        ("INT8", "1", "null", "takes integers, got null"),
        ("UINT64", "1", "-1", "out of range for UINT64"),
        ("INT64", "1", "9223372036854775808", "out of range for INT64"),
        ("BOOL", "true", "1", "takes true or false, got 1"),
        ("BYTES", '"a"', "[1]", "takes strings, got 1"),
    ],
)
def test_the_last_of_many_elements_is_named(door: Any, word: str, element: str, last: str, message: str) -> None:
    count = 200_000
    data = "[" + f"{element}," * (count - 1) + last + "]"
    assert message in error(ask(door, word, text(word, data, f"[1,{count}]")))


@pytest.mark.parametrize(("word", "element"), [("BYTES", '"\u00e9"'), ("BOOL", "true"), ("INT16", "-3")])
def test_nested_data_of_a_large_body_keep_their_order(door: Any, word: str, element: str) -> None:
    row = "[" + ",".join([element] * 3) + "]"
    data = "[" + f"{row}," * 9_999 + row + "]"
    answer = ask(door, word, text(word, data, "[10000,3]"))
    assert answer.status == 200
    assert json.loads(answer.body)["outputs"][0]["data"] == [json.loads(element)] * 30_000


@LARGE
def test_a_key_with_a_nul_is_another_key(door: Any, padding: bytes) -> None:
    more = ',"outputs\\u0000x":5,"inputs\\u0000":7,"parameters":{"a\\u0000b":1}'
    answer = ask(door, "INT8", padding + text("INT8", "[7]", more=more))
    assert answer.status == 200, answer
    assert json.loads(answer.body)["outputs"][0]["data"] == [7]


# What counts as everything, and what is a mistake


@LARGE
@pytest.mark.parametrize("outputs", ["null", "[]"])
def test_no_named_outputs_are_all_of_them(door: Any, outputs: str, padding: bytes) -> None:
    assert ask(door, "INT8", padding + text("INT8", "[7]", more=f',"outputs":{outputs}')).status == 200


@LARGE
@pytest.mark.parametrize("outputs", ["0", '""', "{}", "false", "1"])
def test_outputs_that_are_no_list_are_refused(door: Any, outputs: str, padding: bytes) -> None:
    answer = ask(door, "INT8", padding + text("INT8", "[7]", more=f',"outputs":{outputs}'))
    assert "Unable to parse 'outputs'" in error(answer)


@pytest.mark.parametrize("value", [9223372036854775808, 18446744073709551615])
def test_a_large_integer_is_a_bfloat16_too(door: Any, value: int) -> None:
    answer = ask(door, "BF16", text("BF16", f"[{value}]"))
    assert json.loads(answer.body)["outputs"][0]["data"] == [pytest.approx(float(value), rel=1e-6)]


# Beside the event loop


@pytest.mark.parametrize("form", ["binary strings", "json", "gzip"])
def test_a_large_body_is_read_by_a_thread(door: Any, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[threading.Thread] = []

    def parse(*given: Any) -> Any:
        readers.append(threading.current_thread())
        return real(*given)

    real = v2_module.parse
    monkeypatch.setattr(v2_module, "parse", parse)
    count = 600_000
    if form == "binary strings":
        answer = binary(door, "BYTES", [1, count], b"\0\0\0\0" * count)
    else:
        body = text("INT8", "[" + "7," * (count - 1) + "8]", f"[1,{count}]")
        headers = ["Content-Encoding: gzip"] if form == "gzip" else []
        answer = ask(door, "INT8", gzip.compress(body, 1) if headers else body, *headers)
    assert answer.status == 200
    (output,) = json.loads(answer.body)["outputs"]
    assert output["data"] == ([""] * count if form == "binary strings" else [7] * (count - 1) + [8])
    assert readers != [threading.current_thread()]
    assert len(readers) == 1


def test_a_large_binary_part_of_numbers_is_no_work(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[threading.Thread] = []
    real = v2_module.parse
    monkeypatch.setattr(
        v2_module, "parse", lambda *given: (readers.append(threading.current_thread()), real(*given))[1]
    )
    raw = bytes(1 << 21)
    answer = binary(door, "UINT8", [1, len(raw)], raw, parameters={"binary_data_output": True})
    assert answer.body.endswith(raw)
    assert readers == [threading.current_thread()]


@pytest.mark.parametrize("form", ["json", "binary", "classes"])
def test_many_strings_are_written_by_a_thread(door: Any, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writers: list[threading.Thread] = []
    real = v2_module.encode
    monkeypatch.setattr(
        v2_module, "encode", lambda *given: (writers.append(threading.current_thread()), real(*given))[1]
    )
    word = "INT8" if form == "classes" else "BYTES"
    (servable,) = door.engine.stats(word.lower(), "")
    before = (servable.stats.success.count, servable.stats.executions, servable.stats.fail.count)
    parameters = {"json": {}, "binary": {"binary_data": True}, "classes": {"classification": 3}}[form]
    raw = bytes(20_000) if form == "classes" else b"\x01\0\0\0a" * 20_000
    answer = binary(door, word, [1, 20_000], raw, outputs=[{"name": "Y", "parameters": parameters}])

    assert answer.status == 200
    if form == "json":
        assert json.loads(answer.body)["outputs"][0]["data"] == ["a"] * 20_000
    elif form == "binary":
        assert answer.body.endswith(raw)
    else:
        assert json.loads(answer.body)["outputs"][0]["data"] == ["0:0", "0:1", "0:2"]
    assert len(writers) == 1
    assert writers != [threading.current_thread()]
    stats = servable.stats
    assert (stats.success.count, stats.executions, stats.fail.count) == (before[0] + 1, before[1] + 1, before[2])


@pytest.mark.parametrize("count", [1, 20_000], ids=["at once", "later"])
def test_an_answer_that_cannot_be_written_is_a_failure(door: Any, count: int) -> None:
    (servable,) = door.engine.stats("bytes", "")
    stats = servable.stats
    before = (stats.success.count, stats.fail.count, stats.failures[FailureReason.OTHER])
    answer = binary(door, "BYTES", [1, count], b"\x01\0\0\0\xff" * count)
    assert "not UTF-8" in error(answer)
    assert (stats.success.count, stats.fail.count, stats.failures[FailureReason.OTHER]) == (
        before[0],
        before[1] + 1,
        before[2] + 1,
    )


# The connection


@pytest.mark.parametrize(("version", "status"), [("1.1", 400), ("1.0", 200)])
def test_only_old_requests_do_without_a_host(version: str, status: int) -> None:
    line = Line()
    line.send(get(version=version).replace(b"Host: here\r\n", b""))
    (answer,) = line.answers()
    assert answer.status == status
    assert (b"no Host header" in answer.body) is (status == 400)


@pytest.mark.parametrize("in_chunks", [False, True])
def test_memory_is_given_back_once_a_large_request_has_gone(in_chunks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    class Loop:
        def run_in_executor(self, pool: object, work: object) -> None:
            calls.append(work)

    line = Line()
    server = line.server
    server._loop = Loop()  # type: ignore[assignment]
    body = b"x" * (9 << 20)
    request = chunked("/later", body) if in_chunks else post("/later", body)
    line.send(post("/later", b"small"), sizes=100)
    line.send(request, sizes=1 << 20)
    server._trim()
    assert calls == []
    while server.seen:
        server.seen.pop().respond(200)
    server._trim()
    server._trim()
    assert calls == [memory.trim]
    line.send(request, sizes=1 << 20)
    server.seen.pop().respond(200)
    server._trim()
    assert len(calls) == 1, "not twice within seconds"
    server.now += 10
    server._trim()
    assert len(calls) == 2
