"""What people report of HTTP itself: binary parts, large bodies, Expect, pooled connections, odd paths."""

from __future__ import annotations

import gzip
import re
import socket
import struct
import subprocess
import time
import zlib
from pathlib import Path
from urllib.parse import quote

import pytest
from asking import Asker, binary_body, tensor, x
from bug_models import ODD_NAMES, Shared
from model_folders import write_model, x_to_y
from serving import Gate, Launch, eventually
from wire_http import Wire, infer_body, request

INFER = "/v2/models/fp32/infer"
PAIR = [tensor("x", "FP32", [2], binary_data_size=8), tensor("y", "FP32", [1], binary_data_size=4)]
X_BYTES, Y_BYTES = struct.pack("<2f", 1, 2), struct.pack("<f", 3)


# The bytes after the JSON: too few, too many, in another order.


def test_binary_inputs_are_cut_in_the_order_in_which_they_are_listed(ask: Asker) -> None:
    answer = ask.infer_binary("pair", PAIR, X_BYTES, Y_BYTES)
    assert (answer.data("from_x"), answer.data("from_y")) == ([1.0, 2.0], [3.0])
    other = ask.infer_binary("pair", PAIR[::-1], Y_BYTES, X_BYTES)
    assert (other.data("from_x"), other.data("from_y")) == ([1.0, 2.0], [3.0])


def test_one_input_may_be_json_and_the_other_binary(ask: Asker) -> None:
    answer = ask.infer_binary("pair", [tensor("x", "FP32", [2], [1, 2]), PAIR[1]], Y_BYTES)
    assert (answer.data("from_x"), answer.data("from_y")) == ([1.0, 2.0], [3.0])


def test_a_byte_too_few_and_a_byte_too_many_are_counted(ask: Asker) -> None:
    ask.infer_binary("pair", PAIR, X_BYTES, Y_BYTES[:3]).refused("input 'y'", "expecting 1 additional bytes")
    ask.infer_binary("pair", PAIR, X_BYTES, Y_BYTES, b"!").refused("unexpected additional input data", "1 bytes")


def test_an_input_has_one_source_of_data(ask: Asker) -> None:
    both = {**PAIR[1], "data": [3]}
    ask.infer_binary("pair", [PAIR[0], both], X_BYTES, Y_BYTES).refused("Input must set only one", "'y'")
    neither = tensor("y", "FP32", [1])
    ask.infer_binary("pair", [PAIR[0], neither], X_BYTES).refused("Input must set only one", "'y'")


@pytest.mark.parametrize("size", [-4, 3, "4", 4.0, 2**40])
def test_a_size_that_cannot_be_is_refused(ask: Asker, size: object) -> None:
    wrong = tensor("y", "FP32", [1], binary_data_size=size)
    ask.infer_binary("pair", [PAIR[0], wrong], X_BYTES, Y_BYTES).refused("'y'")


@pytest.mark.parametrize("length", ["-1", "100000", "abc", "1e2", "99999999999999999999999"])
def test_a_header_length_outside_the_body_is_refused(ask: Asker, length: str) -> None:
    body, _ = binary_body({"inputs": PAIR}, X_BYTES, Y_BYTES)
    answer = ask.post("/v2/models/pair/infer", body, {"Inference-Header-Content-Length": length})
    answer.refused("inference header size should be in range (0, ", length)


def test_a_header_length_that_cuts_the_json_is_refused(ask: Asker) -> None:
    body, _ = binary_body({"inputs": PAIR}, X_BYTES, Y_BYTES)
    ask.post("/v2/models/pair/infer", body, {"Inference-Header-Content-Length": "20"}).refused("failed to parse")


def test_a_body_that_is_one_tensor_needs_no_json(ask: Asker) -> None:
    answer = ask.post(INFER, X_BYTES, {"Inference-Header-Content-Length": "0"})
    assert answer.binary == X_BYTES
    ask.post("/v2/models/pair/infer", X_BYTES, {"Inference-Header-Content-Length": "0"}).refused(
        "Raw request must only have 1 input (found 2)"
    )


# Bodies larger than an int, and larger than allowed.


def test_a_body_of_3_gigabytes_is_refused_before_it_is_sent(shared: Shared, ask: Asker) -> None:
    with Wire(shared.server.port) as wire:
        head = request(INFER, b"", "Inference-Header-Content-Length: 187", length=3_282_758_843)
        wire.send(head + b"x" * 1024)
        message = wire.read().refused("3282758843 bytes", status=413)
        assert not re.search(r"-\d", message)
        assert wire.is_closed


@pytest.mark.parametrize("length", ["-5", "99999999999999999999999999", "abc", "5, 6"])
def test_a_content_length_that_is_no_number_is_refused(shared: Shared, ask: Asker, length: str) -> None:
    with Wire(shared.server.port) as wire:
        wire.send(f"POST {INFER} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n".encode())
        assert wire.read().status in (400, 413)
        assert wire.is_closed


def test_json_above_the_limit_is_refused_with_the_name_of_the_option(shared: Shared, ask: Asker) -> None:
    body = infer_body([0.125] * 1_200_000)
    assert len(body) > 8_000_000
    ask.post(INFER, body).refused("8000000 bytes", "--http-max-input-size", status=413)
    with Wire(shared.server.port) as wire:  # a client that sends everything before it reads sees the answer too
        wire.send(request(INFER, body))
        wire.read().refused("--http-max-input-size", status=413)


def test_chunks_that_add_up_to_more_than_the_limit_are_refused_too(shared: Shared, ask: Asker) -> None:
    with Wire(shared.server.port) as wire:
        wire.send(request(INFER, b"", "Transfer-Encoding: chunked"))
        chunk = b"%x\r\n%b\r\n" % (1_000_000, b" " * 1_000_000)
        for _ in range(9):
            wire.send(chunk)
        wire.read().refused("--http-max-input-size", status=413)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_body_that_unpacks_to_more_than_the_limit_is_refused(ask: Asker, encoding: str) -> None:
    pack = gzip.compress if encoding == "gzip" else zlib.compress
    bomb = pack(b" " * 50_000_000)
    assert len(bomb) < 100_000
    ask.post(INFER, bomb, {"Content-Encoding": encoding}).refused("8000000 bytes", "--http-max-input-size")


def test_a_binary_tensor_larger_than_the_json_limit_is_answered(ask: Asker) -> None:
    raw = bytes(range(256)) * 36_000
    given = tensor("X", "UINT8", [len(raw)], binary_data_size=len(raw))
    wanted = [{"name": "Y", "parameters": {"binary_data": True}}]
    assert ask.infer_binary("uint8", [given], raw, outputs=wanted).binary == raw


# Expect: 100-continue, for which curl waits a second.


def test_a_client_that_waits_for_100_gets_it_at_once(shared: Shared, ask: Asker) -> None:
    body = infer_body([1, 2])
    with Wire(shared.server.port) as wire:
        wire.send(request(INFER, b"", "Expect: 100-continue", length=len(body)))
        assert wire.read().status == 100
        wire.send(body)
        assert wire.read().data() == [1.0, 2.0]


def test_curl_sends_two_megabytes_without_its_second_of_waiting(shared: Shared, ask: Asker, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_bytes(infer_body([0.5] * 400_000))
    assert file.stat().st_size > 1_900_000
    url = f"http://127.0.0.1:{shared.server.port}{INFER}"
    command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "*", "--data-binary", f"@{file}"]
    seconds = {}
    for expect in ("Expect:", "Expect: 100-continue"):
        started = time.monotonic()
        done = subprocess.run([*command, "-H", expect, url], capture_output=True, text=True, timeout=20, check=True)
        seconds[expect] = time.monotonic() - started
        assert done.stdout == "200"
    assert seconds["Expect: 100-continue"] < seconds["Expect:"] + 0.5


def test_a_1_0_client_is_never_told_to_continue(shared: Shared, ask: Asker) -> None:
    with Wire(shared.server.port) as wire:
        wire.send(request(INFER, infer_body([1]), "Expect: 100-continue", version="1.0"))
        assert wire.read().data() == [1.0]
        assert wire.is_closed


def test_another_expectation_is_417(shared: Shared, ask: Asker) -> None:
    with Wire(shared.server.port) as wire:
        wire.send(request(INFER, b"", "Expect: something-else", length=10))
        wire.read().refused("something-else", status=417)


@pytest.mark.parametrize(("path", "length", "status"), [("/v2/nothing", 10, 404), (INFER, 9_000_000, 413)])
def test_a_request_that_will_be_refused_is_refused_without_its_body(
    shared: Shared, ask: Asker, path: str, length: int, status: int
) -> None:
    with Wire(shared.server.port) as wire:
        wire.send(request(path, b"", "Expect: 100-continue", length=length))
        assert wire.read().status == status


# Pooled connections, pipelining, half-closed sockets.


def test_two_requests_in_one_packet_are_answered_in_order(shared: Shared, ask: Asker) -> None:
    with Wire(shared.server.port) as wire:
        wire.send(
            request(INFER, infer_body([1])) + request("/v2/models/int8/infer", b"{}") + request(INFER, infer_body([2]))
        )
        assert wire.read().data() == [1.0]
        wire.read().refused("'inputs'")
        assert wire.read().data() == [2.0]


def test_a_fast_answer_waits_for_the_slow_one_before_it(shared: Shared, ask: Asker) -> None:
    gate = shared.gate("held")
    with Wire(shared.server.port) as wire:
        wire.send(request("/v2/models/held/infer", infer_body([7])) + request(INFER, infer_body([8])))
        eventually(lambda: [7.0] in gate.batches, "the slow request runs")
        gate.open()
        assert [wire.read().data(), wire.read().data()] == [[7.0], [8.0]]
        gate.close()


def test_a_connection_survives_a_refused_request(shared: Shared, ask: Asker) -> None:
    with Wire(shared.server.port) as wire:
        for body in (b"{not json", b"", b'{"inputs":[]}'):
            wire.send(request(INFER, body, length=len(body)))
            assert wire.read().status == 400
        wire.send(request(INFER, infer_body([5])))
        assert wire.read().data() == [5.0]


def test_a_thousand_requests_go_over_one_connection(shared: Shared, ask: Asker) -> None:
    with Wire(shared.server.port) as wire:
        for number in range(1000):
            wire.send(request(INFER, infer_body([number])))
            assert wire.read().data() == [float(number)]


@pytest.mark.parametrize(
    ("version", "headers", "is_closed"),
    [("1.1", ["Connection: close"], True), ("1.0", [], True), ("1.0", ["Connection: keep-alive"], False)],
)
def test_the_connection_closes_when_the_client_asked_for_it(
    shared: Shared, ask: Asker, version: str, headers: list[str], is_closed: bool
) -> None:
    with Wire(shared.server.port) as wire:
        wire.send(request(INFER, infer_body([1]), *headers, version=version))
        answer = wire.read()
        assert answer.data() == [1.0]
        if is_closed:
            assert answer.headers["connection"].lower() == "close"
            assert wire.is_closed
        else:
            assert answer.headers["connection"].lower() == "keep-alive"
            wire.send(request(INFER, infer_body([2]), *headers, version=version))
            assert wire.read().data() == [2.0]


def test_a_client_that_has_finished_sending_still_gets_its_answer(shared: Shared, ask: Asker) -> None:
    with Wire(shared.server.port) as wire:
        wire.send(request(INFER, infer_body([1])) + request(INFER, infer_body([2])))
        wire.socket.shutdown(socket.SHUT_WR)
        assert [wire.read().data(), wire.read().data()] == [[1.0], [2.0]]
        assert wire.is_closed


def test_a_slow_answer_outlives_every_idle_limit(launch: Launch, tmp_path: Path, gate: Gate) -> None:
    write_model(tmp_path / "repository", "held", f'backend: "gated"\n{x_to_y()}{gate.parameters()}')
    server = launch(tmp_path / "repository", "--http-idle-timeout-secs=1", "--http-header-timeout-secs=1")
    with Wire(server.port) as slow, Wire(server.port) as idle, Wire(server.port) as half:
        slow.send(request("/v2/models/held/infer", infer_body([1])))
        half.send(b"POST /v2/models/held/infer HTTP/1.1\r\nHost:")
        gate.wait_for_batches(1)
        assert idle.is_closed  # gracefully: no reset, no bytes
        assert half.read().status == 408
        gate.open()
        assert slow.read().data() == [1.0]


# Names and paths.


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_model_may_be_called_anything_a_folder_may(ask: Asker, name: str) -> None:
    path = f"/v2/models/{quote(name, safe='')}"
    assert ask.get(path).json["name"] == name
    assert ask.get(f"{path}/ready").status == 200
    assert ask.get(f"{path}/versions/1/config").json["name"] == name
    answer = ask.post(f"{path}/versions/1/infer", {"inputs": [x("FP32", [1])]})
    assert (answer.json["model_name"], answer.data()) == (name, [1.0])
    assert name in ask.index()


def test_a_name_is_decoded_once(shared: Shared, ask: Asker) -> None:
    with Wire(shared.server.port) as wire:
        for path, name in (("/v2/models/%2541", "%41"), ("/v2/models/%66p32", "fp32")):
            wire.send(request(path, method="GET"))
            assert wire.read().json["name"] == name


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/models/%2e%2e/infer", 400),
        ("/v2/models/../infer", 400),
        ("/v2/models/..%2f..%2fetc/infer", 400),
        ("/v2/models/nobody/infer", 400),
        ("/v2/models/fp32/versions/1x/infer", 404),
        ("/v2/models/fp32/versions/-1/infer", 404),
        ("/v2/models/fp32/versions//infer", 404),
        ("/v2/models/fp32/versions/2/infer", 404),
        ("/v2/models/fp32/versions/99999999999999999999999/infer", 400),
        ("/v2//models/fp32/infer", 404),
        ("/v2/models/fp32/infer/", 404),
        ("/v2/models//infer", 404),
        ("/v2/models/%ff/infer", 400),
        ("/v3/models/fp32/infer", 404),
        ("/", 404),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_in_json(shared: Shared, ask: Asker, path: str, status: int) -> None:
    with Wire(shared.server.port) as wire:
        wire.send(request(path, infer_body([1])))
        wire.read().refused(status=status)


def test_an_unknown_model_is_named(ask: Asker) -> None:
    ask.infer("nobody", x("FP32", [1])).refused("Request for unknown model: 'nobody' is not found")
    ask.infer("fp32", x("FP32", [1]), version="7").refused("'fp32' version 7 is not found", status=404)


def test_a_query_string_changes_nothing(ask: Asker) -> None:
    assert ask.post(f"{INFER}?a=b&c", {"inputs": [x("FP32", [1])]}).data() == [1.0]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", INFER, "POST"),
        ("DELETE", "/v2/models/fp32", "GET, HEAD"),
        ("POST", "/v2/health/live", "GET, HEAD"),
        ("PUT", "/v2/repository/index", "POST"),
    ],
)
def test_a_wrong_verb_is_405_and_the_right_ones_are_listed(ask: Asker, method: str, path: str, allow: str) -> None:
    answer = ask.send(method, path)
    answer.refused("Method Not Allowed", status=405)
    assert answer.headers["allow"] == allow


def test_head_is_get_without_a_body(ask: Asker) -> None:
    get, head = ask.get("/v2/models/fp32"), ask.send("HEAD", "/v2/models/fp32")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.body))


# What gateways and no-code tools do with answers and bodies.


def test_every_answer_says_how_long_it_is_and_that_it_is_json(ask: Asker) -> None:
    for answer in (ask.infer("fp32", x("FP32", [1])), ask.infer("fp32"), ask.get("/v2/health/ready")):
        assert answer.headers["content-type"].split(";")[0] == "application/json"
        assert int(answer.headers["content-length"]) == len(answer.body)


def test_a_large_answer_can_be_had_small(ask: Asker) -> None:
    data = [0.125] * 200_000
    whole = ask.infer("fp32", x("FP32", data))
    assert len(whole.body) > 900_000
    best = ask.infer("fp32", x("FP32", data), outputs=[{"name": "Y", "parameters": {"classification": 2}}])
    assert best.data() == ["0.125000:0", "0.125000:1"]
    assert len(best.body) < 300
    packed = ask.post(INFER, {"inputs": [x("FP32", data)]}, {"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < 20_000
    assert packed.data() == data


def test_outputs_that_are_not_asked_for_are_not_sent(ask: Asker) -> None:
    given = [tensor("x", "FP32", [2], [1, 2]), tensor("y", "FP32", [1], [3])]
    answer = ask.infer("pair", *given, outputs=[{"name": "from_y"}])
    assert [output["name"] for output in answer.json["outputs"]] == ["from_y"]


@pytest.mark.parametrize(
    ("body", "fragments"),
    [
        ("""{"inputs":[{"name":"X","shape":[2],"datatype":"BYTES","data":['a','b']}]}""", ["single quotes", "line 1"]),
        ('{"inputs":[{"name":"X","shape":[1],"datatype":"BYTES","data":["a\nb"]}]}', ["raw newline", "line "]),
        ('{"inputs":[{"name":"X","shape":[1],"datatype":"BYTES","data":["a\tb"]}]}', ["raw newline or tab"]),
        ('{"inputs":[{"name":"X","shape":[2],"datatype":"BYTES","data":"[1,2]"}]}', ["a string that holds JSON"]),
        ('{"inputs":[{"name":"X","shape":[5],"datatype":"BYTES","data":"a cat"}]}', ["one string: send an array"]),
        ('{"inputs":[{"name":"X","shape":"[2]","datatype":"BYTES","data":["a","b"]}]}', ["'shape'", "array"]),
        ('{"inputs":[{"name":"X","shape":[1],"datatype":"BYTES","data":[True]}]}', ["looks like Python"]),
        ('{"inputs":[{"name":"X","shape":[1],"datatype":"BYTES","data":["a"],}]}', ["line 1 column"]),
    ],
    ids=["single-quotes", "newline", "tab", "data-in-quotes", "one-string", "shape-in-quotes", "python", "comma"],
)
def test_a_body_made_from_a_template_is_told_what_is_wrong_with_it(ask: Asker, body: str, fragments: list[str]) -> None:
    ask.infer_text("bytes", body).refused(*fragments)


def test_numbers_in_quotes_are_named_as_such(ask: Asker) -> None:
    ask.infer("fp32", x("FP32", ["1", "2"])).refused("input 'X'", "takes numbers, got")
