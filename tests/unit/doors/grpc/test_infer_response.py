"""Answers written as bytes are what protobuf would have written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bident.doors.grpc import infer_response
from bident.doors.grpc.infer_response import FINAL, NOT_FINAL, encode, in_stream, varint
from bident.doors.grpc.messages import pb
from bident.errors import ServeError
from bident.wire.datatypes import BYTES, DATATYPES, FP32, DataType
from bident.wire.infer import Column, InferResponse
from bident.wire.tensor import pack
from tests.unit.doors.played_engine import PlayedServable
from tests.unit.engine.engine_fakes import model_config


def response_of(columns: list[Column], start: int = 0, stop: int = -1, request_id: str = "") -> InferResponse:
    return InferResponse("m", "3", request_id, columns, start, stop)


def expected(response: InferResponse, **parameters: Any) -> bytes:
    """What protobuf writes."""
    message = pb.ModelInferResponse(model_name="m", model_version="3", id=response.id, parameters=parameters)
    for output in response.outputs:
        message.outputs.add(name=output.name, datatype=output.datatype.name, shape=output.array.shape)
        message.raw_output_contents.append(bytes(pack(output.array, output.datatype)))
    text: bytes = message.SerializeToString(deterministic=True)
    return text


def written(response: InferResponse, final: bytes = b"", servable: PlayedServable | None = None) -> bytes:
    return encode(response, None, servable or PlayedServable(model_config()), final)  # type: ignore[arg-type]


def column(datatype: DataType, shape: tuple[int, ...], name: str = "Y") -> Column:
    count = int(np.prod(shape))
    if datatype is BYTES:
        array = np.array([b"x" * (number % 5) for number in range(count)], dtype=object)
    else:
        array = np.arange(count).astype(datatype.numpy)
    return Column(name, datatype, array.reshape(shape))


@pytest.mark.parametrize("word", DATATYPES)
@pytest.mark.parametrize("shape", [(4, 2), (4, 0), (4,), (4, 1, 70)])
def test_whole_and_sliced(word: str, shape: tuple[int, ...]) -> None:
    columns = [column(DATATYPES[word], shape), column(FP32, (4, 3), "Z")]
    servable = PlayedServable(model_config())
    for response in (
        response_of(columns),
        response_of(columns[::-1]),
        response_of(columns, 0, 4),
        response_of(columns, 1, 2, "é"),
        response_of(columns, 2, 4),
        response_of(columns[1:], 3, 4),
        response_of([]),
    ):
        for _ in range(2):  # the second time with what is remembered
            assert written(response, servable=servable) == expected(response)


@pytest.mark.parametrize("shape", [(), (1,), (0,)])
def test_outputs_without_a_batch(shape: tuple[int, ...]) -> None:
    response = response_of([column(FP32, shape)])
    assert written(response) == expected(response)


def test_long_columns_are_not_copied_first() -> None:
    large = column(FP32, (4, infer_response._COPIED))
    assert written(response_of([large], 1, 3)) == expected(response_of([large], 1, 3))
    assert isinstance(large.packed.data, memoryview)


def test_arrays_that_do_not_lie_in_a_row() -> None:
    array = np.arange(24, dtype=">f4").reshape(4, 6)[:, ::2]
    for response in (response_of([Column("Y", FP32, array)]), response_of([Column("Y", FP32, array)], 1, 2)):
        assert written(response) == expected(response)


def test_parameters_and_the_flag_of_a_stream() -> None:
    response = response_of([column(FP32, (2,))])
    response.parameters = {"a": 1, "b": True, "c": "é", "d": 1.5}
    for final, flag in ((FINAL, True), (NOT_FINAL, False)):
        message = pb.ModelInferResponse.FromString(written(response, final))
        assert message.parameters["triton_final_response"].bool_param is flag
        assert message.parameters["triton_final_response"].WhichOneof("parameter_choice") == "bool_param"
        assert message.parameters["a"].int64_param == 1
        assert message.parameters["b"].bool_param is True
        assert message.parameters["c"].string_param == "é"
        assert message.parameters["d"].double_param == 1.5
    streamed = pb.ModelStreamInferResponse.FromString(in_stream(written(response)))
    assert streamed.error_message == ""
    assert len(streamed.infer_response.raw_output_contents[0]) == 8


@given(st.integers(0, 2**40))
@settings(max_examples=200, deadline=None)
def test_numbers_as_protobuf_writes_them(number: int) -> None:
    assert b"\x10" + varint(number) == pb.InferParameter(int64_param=number).SerializeToString()


def test_what_no_message_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infer_response, "_LARGEST", 100_000)
    with pytest.raises(ServeError, match="Response has byte size 120000 which exceeds gRPC's byte size limit"):
        written(response_of([column(FP32, (4, 30_000))], 1, 2))
    assert written(response_of([column(FP32, (4, 20_000))], 1, 2))


@pytest.mark.parametrize("names", [("a", "b"), ("100%", "%b")])
def test_requests_of_one_batch_that_want_other_outputs_get_theirs(names: tuple[str, str]) -> None:
    columns = [
        Column(name, FP32, np.arange(6, dtype=np.float32).reshape(3, 2) + place) for place, name in enumerate(names)
    ]
    for wanted, start in ((columns, 0), (columns[:1], 1), (columns[::-1], 2), (columns, 1)):
        message = pb.ModelInferResponse.FromString(written(response_of(wanted, start, start + 1)))
        assert [output.name for output in message.outputs] == [each.name for each in wanted]
        assert message.raw_output_contents[:] == [each.array[start].tobytes() for each in wanted]
