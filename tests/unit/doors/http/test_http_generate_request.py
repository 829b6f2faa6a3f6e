"""What the generate routes make of a request, and what they refuse."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from generate_house import Stage
from http_line import post

from bident.doors.http import generate as generate_module
from bident.doors.http.v2_json import LARGE_BODY
from bident.errors import ServeError
from bident.model.config import ModelConfig
from bident.wire.datatypes import DATATYPES
from bident.wire.numbers import to_array
from tests.unit.engine.engine_fakes import model_config, until

ROUTES = ("generate", "generate_stream")
NOT_ONE = "generate expects model to produce exactly 1 response, use generate stream for model that generates"


def taking(word: str = "FP32", dims: str = "-1", batch: int = 0) -> ModelConfig:
    """A model with the input X."""
    io = f'input [ {{ name: "X" data_type: TYPE_{word} dims: [ {dims} ] }} ]'
    io += 'output [ { name: "NUMBERS" data_type: TYPE_FP32 dims: [ -1 ] } ]'
    return model_config("", io=io, batch=batch, name="m")


def given(config: ModelConfig, document: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and elements of the input X that the model gets."""
    stage = Stage(config)
    stage.ask(document, route="generate")
    tensor = stage.request.inputs["X"]
    data = tensor.data if isinstance(tensor.data, np.ndarray) else to_array("X", tensor.datatype, tensor.data)
    assert data.size == tensor.count
    return tensor.shape, data.reshape(-1).tolist()


def refusal(document: Any, config: ModelConfig | None = None, route: str = "generate") -> str:
    stage = Stage(config or taking())
    stage.ask(document, route=route)
    status, message = stage.refusal
    assert status == 400
    assert not stage.servable.requests
    return message


class TestRequest:
    @pytest.mark.parametrize("size", [0, LARGE_BODY])
    def test_every_member_has_its_place(self, size: int) -> None:
        stage = Stage()
        nested = {"temperature": 0.5, "PLAN": "x"}
        stage.ask({"id": "r1", "n": 5, "t": True, "s": "y" * size, "parameters": nested})
        request = stage.request
        assert request.id == "r1"
        assert request.inputs["PLAN"].data == [b"x"]
        assert request.parameters == {"id": "r1", "n": 5, "t": True, "s": "y" * size, "temperature": 0.5}
        assert (request.priority, request.timeout_us, request.outputs) == (0, 0, None)

    def test_without_parameters(self) -> None:
        stage = Stage()
        stage.ask({"PLAN": "x"})
        assert stage.request.parameters is None

    @pytest.mark.parametrize(
        ("dims", "batch", "count", "shape"),
        [
            ("-1", 0, 3, (3,)),
            ("-1", 0, 0, (0,)),
            ("1", 0, 1, (1,)),
            ("2, 3", 0, 6, (2, 3)),
            ("-1, 4", 0, 8, (2, 4)),
            ("4, -1", 0, 8, (4, 2)),
            ("-1, -1", 0, 8, (1, 8)),
            ("-1, -1, 2, -1", 0, 8, (1, 1, 2, 4)),
            ("4", 8, 12, (3, 4)),
            ("-1", 8, 12, (1, 12)),
            ("-1, 3", 8, 12, (1, 4, 3)),
            ("1", 8, 1, (1, 1)),
        ],
    )
    def test_shapes(self, dims: str, batch: int, count: int, shape: tuple[int, ...]) -> None:
        numbers = [float(number) for number in range(count)]
        assert given(taking("FP32", dims, batch), {"X": numbers}) == (shape, numbers)

    @pytest.mark.parametrize(
        ("dims", "batch", "count", "hint"),
        [
            ("4", 0, 3, "3 elements do not fill [4], which takes 4"),
            ("4", 0, 0, "0 elements do not fill [4], which takes 4"),
            ("4", 0, 8, "8 elements do not fill [4], which takes 4"),
            ("-1, 4", 0, 6, "6 elements do not fill [-1, 4], which takes a multiple of 4"),
            ("4", 8, 6, "6 elements do not fill [-1, 4], which takes a multiple of 4"),
        ],
    )
    def test_elements_that_fill_no_shape(self, dims: str, batch: int, count: int, hint: str) -> None:
        message = refusal({"X": [1.0] * count}, taking("FP32", dims, batch))
        assert message == f"The schema can not convert input 'X' to tensor with proper shape: {hint}"

    @pytest.mark.parametrize(
        ("word", "value", "elements"),
        [
            ("BOOL", True, [True]),
            ("UINT8", 255, [255]),
            ("INT64", -(2**63), [-(2**63)]),
            ("UINT64", 2**64 - 1, [2**64 - 1]),
            ("FP16", 0.1, [0.0999755859375]),
            ("BF16", [1, 0.5], [1, 0.5]),
            ("FP32", 3, [3]),
            ("FP64", 1e300, [1e300]),
            ("STRING", "", [b""]),
            ("STRING", ["a", "\u00e9\0"], [b"a", "\u00e9\0".encode()]),
        ],
    )
    def test_values(self, word: str, value: Any, elements: list[Any]) -> None:
        count = len(value) if isinstance(value, list) else 1
        assert given(taking(word), {"X": value}) == ((count,), elements)

    def test_of_two_with_one_name_the_last_counts(self) -> None:
        assert given(taking(), b'{"X":1,"X":[2,3]}') == ((2,), [2, 3])

    def test_parameters_are_64_bit_integers_or_doubles(self) -> None:
        stage = Stage()
        stage.ask(b'{"PLAN":"x","a":9223372036854775807,"b":9223372036854775808,"c":1e20,"d":-99999999999999999999}')
        parameters = stage.request.parameters
        assert parameters == {"a": 2**63 - 1, "b": 2.0**63, "c": 1e20, "d": -1e20}
        assert [type(value) for value in parameters.values()] == [int, float, float, float]

    def test_headers(self) -> None:
        stage = Stage()
        stage.ask({"PLAN": "x"}, "Content-Encoding: identity", "Inference-Header-Content-Length: 5")
        assert stage.request.inputs

    @pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
    def test_other_content_encodings(self, encoding: str) -> None:
        stage = Stage()
        stage.ask({"PLAN": "x"}, f"Content-Encoding: {encoding}")
        assert stage.refusal == (400, "Unsupported content-encoding, only 'identity' is supported.")

    @pytest.mark.parametrize("route", ROUTES)
    def test_unknown_models_and_what_the_engine_refuses(self, route: str) -> None:
        stage = Stage()
        stage.line.send(post(f"/v2/models/nope/{route}", b"nonsense"))
        assert stage.refusal[0] == 404
        assert "expected 1 inputs but got 0" in refusal({}, route=route)

    @pytest.mark.parametrize("route", ROUTES)
    def test_versions(self, route: str) -> None:
        stage = Stage()
        stage.line.send(post("/v2/models/talk/versions/1/" + route, b'{"PLAN":"x"}'))
        assert stage.request.model_version == "1"

    def test_get_is_not_allowed(self) -> None:
        stage = Stage()
        stage.line.send(b"GET /v2/models/talk/generate HTTP/1.1\r\nHost: x\r\n\r\n")
        assert stage.answers[0].status == 405


DEEP = 5000


class TestBadBytes:
    @pytest.mark.parametrize("padding", [0, LARGE_BODY])
    @pytest.mark.parametrize(
        ("body", "fragment"),
        [
            (b"", 'the body is empty: POST a JSON object such as {"X": ...}'),
            (b"{", "failed to parse the request JSON buffer"),
            (b'{"X":NaN}', "JSON has no NaN"),
            (b'{"X":1e999}', "failed to parse the request JSON buffer"),
            (b'{"X":"\\ud800"}', "failed to parse the request JSON buffer"),
            (b'{"X":"\xff"}', "failed to parse the request JSON buffer"),
            (b"[1]", "attempt to get members for non-object"),
            (b"null", "attempt to get members for non-object"),
            (b'"X"', "attempt to get members for non-object"),
            (b'{"X":' + b"[" * DEEP + b"]" * DEEP + b"}", "failed to parse the request JSON buffer"),
            (b'{"X":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}", "failed to parse the request JSON buffer"),
            (b'{"X":' + b'{"a":' * 500 + b"1" + b"}" * 500 + b"}", "attempt to access JSON non-number as double"),
            (b'{"a":' + b"[" * 500 + b"]" * 500 + b"}", "parameter 'a' has invalid type"),
            (b'{"parameters":' + b"[" * 500 + b"]" * 500 + b"}", "Expected JSON object for keyword: 'parameters'"),
            (b'{"id":' + b"[" * 500 + b"]" * 500 + b"}", "Unable to parse 'id'"),
            (
                b'{"X":[[1,2],[3]]}',
                "Shape does not match true shape of 'data' field: input 'X' takes a flat array, and the 2 items of "
                "this one hold 3 elements",
            ),
            (b'{"X":[[1],[]]}', "and the 2 items of this one hold 1 elements"),
            (b'{"X":null}', "JSON non-number as double"),
            (b'{"X":["1"]}', "JSON non-number as double"),
            (b'{"X":1e39}', "out of range"),
            (b'{"X":[1,{}]}', "JSON non-number as double"),
            (b'{"X":1,"a":null}', "parameter 'a' has invalid type"),
            (
                b'{"parameters":{"parameters":{}}}',
                "Converting keyword: 'parameters': parameter 'parameters' has invalid",
            ),
        ],
    )
    def test_get_a_clear_error(self, body: bytes, fragment: str, padding: int) -> None:
        stage = Stage(taking(dims="1") if b"1e39" in body else taking())
        stage.ask(body + b" " * padding, route="generate")
        if b"1e39" in body and not stage.answers:
            with pytest.raises(ServeError, match="out of range"):  # small lists are looked at when batches are joined
                to_array("X", DATATYPES["FP32"], stage.request.inputs["X"].data)
            return
        status, message = stage.refusal
        assert status == 400
        assert fragment in message
        assert len(message) < 600

    def test_get_a_clear_error_however_deep(self) -> None:
        assert "nested deeper than 100 levels" in refusal(b'{"X":' + b"[" * 500 + b"1" + b"]" * 500 + b"}")

    def test_an_input_that_comes_twice(self) -> None:
        message = refusal({"X": 1, "parameters": {"X": 2}})
        assert message == "Converting keyword: 'parameters': input 'X' already exists in request"

    def test_an_input_called_parameters(self) -> None:
        io = 'input [ { name: "parameters" data_type: TYPE_FP32 dims: [ 1 ] } ]'
        io += 'output [ { name: "NUMBERS" data_type: TYPE_FP32 dims: [ 1 ] } ]'
        message = refusal({"parameters": {"a": 1}}, model_config("", io=io, batch=0))
        assert message.startswith("Keyword 'parameters' for nested schema also given as input tensor name")


class TestLargeBodies:
    """Both readers obey the same rules."""

    @pytest.mark.parametrize("word", ["FP32", "FP16", "BF16", "INT8", "UINT64", "INT64"])
    def test_numbers(self, word: str) -> None:
        numbers = [number % 100 for number in range(LARGE_BODY)]
        assert given(taking(word), {"X": numbers}) == ((LARGE_BODY,), numbers)
        assert given(taking(word, "-1, 2"), {"parameters": {"X": numbers}}) == ((LARGE_BODY // 2, 2), numbers)

    def test_strings(self) -> None:
        texts = [f"text {number}" for number in range(5000)]
        assert given(taking("STRING"), {"X": texts}) == ((5000,), [text.encode() for text in texts])

    @pytest.mark.parametrize(
        ("data", "fragment"),
        [
            ([[1, 2]] * 9000, "9000 items of this one hold 18000 elements"),
            ([1.0] * 9000 + ["x"], "JSON non-number as double"),
            ([1.0] * 9000 + [None], "JSON non-number as double"),
            ([1.0] * 9000 + [1e39], "out of range for FP32"),
            ([1.0] * 9000 + [[1]], ""),
        ],
    )
    def test_elements_that_do_not_fit(self, data: list[Any], fragment: str) -> None:
        if not fragment:
            assert given(taking(), {"X": data})[0] == (9001,)
        else:
            assert fragment in refusal({"X": data})

    def test_a_long_parameter_is_refused_as_a_short_one_is(self) -> None:
        short, long = refusal({"a": [1]}), refusal({"a": [1] * 20_000})
        assert short == long

    def test_megabytes_are_read_by_a_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(generate_module, "READ_HERE", 100)

        async def run(document: Any) -> Stage:
            stage = Stage(taking())
            stage.ask(document, route="generate")
            assert not stage.servable.requests
            await until(lambda: stage.servable.requests or stage.answers)
            return stage

        assert asyncio.run(run({"X": [1.0] * 100})).request.inputs["X"].shape == (100,)
        assert asyncio.run(run({"a": [1.0] * 100})).refusal[0] == 400

    def test_a_client_that_goes_meanwhile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(generate_module, "READ_HERE", 0)

        async def run() -> None:
            stage = Stage(taking())
            stage.ask({"X": 1.0})
            stage.line.connection.connection_lost(None)
            await until(lambda: not stage.line.server._tasks)
            assert not stage.servable.requests

        asyncio.run(run())
