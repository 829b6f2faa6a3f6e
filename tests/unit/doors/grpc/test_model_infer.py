"""ModelInfer on a whole engine: every datatype, both forms of a tensor, parameters, and mistakes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from bident.doors import answers
from bident.doors.forwarding import Forwarding
from bident.doors.grpc import inference
from bident.doors.grpc.call import Status
from bident.doors.grpc.messages import pb
from bident.wire.datatypes import DATATYPES
from tests.unit.doors.grpc.grpc_questions import parameter, question, raw, refused, typed
from tests.unit.doors.grpc.grpc_stage import FakeCall, RefusedError, Site

TYPED: dict[str, tuple[str, list[Any]]] = {
    "BOOL": ("bool_contents", [True, False]),
    "UINT8": ("uint_contents", [0, 255]),
    "UINT16": ("uint_contents", [0, 65535]),
    "UINT32": ("uint_contents", [0, 2**32 - 1]),
    "UINT64": ("uint64_contents", [0, 2**64 - 1]),
    "INT8": ("int_contents", [-128, 127]),
    "INT16": ("int_contents", [-32768, 32767]),
    "INT32": ("int_contents", [-(2**31), 2**31 - 1]),
    "INT64": ("int64_contents", [-(2**63), 2**63 - 1]),
    "FP32": ("fp32_contents", [float("inf"), -0.0]),
    "FP64": ("fp64_contents", [1e300, -1.5]),
    "BYTES": ("bytes_contents", [b"", b"\xff\x00"]),
}
REGION = "'shared_memory_region' parameter"
WRONG_TYPE = "invalid value type for '{}' parameter, expected {}"


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_comes_back_as_it_lies(site: Site, datatype: str) -> None:
    values = TYPED[datatype][1] if datatype in TYPED else [1.5, -2]
    request = raw(datatype, values)
    answer = site.infer(request)
    (output,) = answer.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("Y", datatype, [1, 2])
    assert list(answer.raw_output_contents) == list(request.raw_input_contents)
    assert (answer.model_name, answer.model_version, answer.id) == (datatype.lower(), "1", "")


@pytest.mark.parametrize("datatype", TYPED)
def test_typed_contents_are_answered_with_raw_ones(site: Site, datatype: str) -> None:
    field, values = TYPED[datatype]
    answer = site.infer(typed(datatype, field, values))
    assert list(answer.raw_output_contents) == list(raw(datatype, values).raw_input_contents)


@pytest.mark.parametrize("datatype", ["INT8", "UINT16", "INT64", "FP32", "BOOL", "BYTES"])
def test_many_typed_elements(site: Site, datatype: str) -> None:
    field, values = TYPED[datatype]
    many = values * 3000
    answer = site.infer(typed(datatype, field, many, (2, 3000)))
    assert list(answer.raw_output_contents) == list(raw(datatype, many, (2, 3000)).raw_input_contents)


def test_a_large_tensor_is_not_copied_on_its_way_in(site: Site) -> None:
    values = np.arange(1 << 20, dtype=np.float32)
    request = question("FP32", (1, 1 << 20))
    request.raw_input_contents.append(values.tobytes())
    assert site.infer(request).raw_output_contents[0] == values.tobytes()


def test_long_strings_are_read_and_written_by_threads(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "READ_HERE", 1000)
    monkeypatch.setattr(answers, "WRITE_HERE", 10)
    strings = [b"x" * (index % 7) for index in range(500)]
    assert site.infer(raw("BYTES", strings, (1, 500))).raw_output_contents == raw("BYTES", strings).raw_input_contents
    assert site.infer(typed("BYTES", "bytes_contents", strings, (1, 500))).raw_output_contents
    with pytest.raises(RefusedError, match="expected 501 string elements"):
        site.infer(typed("BYTES", "bytes_contents", strings, (1, 501)))


def test_the_id_comes_back(site: Site) -> None:
    assert site.infer(raw("INT8", [1, 2], id="r-é")).id == "r-é"


@pytest.mark.parametrize("version", ["", "1", "01", "0" * 9000 + "1"])
def test_versions(site: Site, version: str) -> None:
    assert site.infer(raw("INT8", [1, 2], model_version=version)).model_version == "1"


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("x", "failed to get model version from specified version string 'x'"),
        ("1x", "failed to get model version from specified version string '1x'"),
        ("9" * 30, "failed to get model version from specified version string"),
        ("-1", "invalid model version specified '-1' , version should be an integral value > 0"),
    ],
)
def test_versions_that_are_none(site: Site, version: str, text: str) -> None:
    assert text in refused(site, raw("INT8", [1, 2], model_version=version))


def test_a_model_or_version_that_there_is_not(site: Site) -> None:
    with pytest.raises(RefusedError, match="Request for unknown model: 'nobody' is not found"):
        site.infer(question(model="nobody"))
    for version in ("7", "0"):
        with pytest.raises(RefusedError, match=f"'int8' version {version} is not found") as caught:
            site.infer(raw("INT8", [1, 2], model_version=version))
        assert caught.value.status is Status.NOT_FOUND


def test_bytes_that_are_no_message(site: Site) -> None:
    for message in (b"\xff\xff\xff", b"\x0a\x05ab", b"\x3a\xff\xff\xff\xff\xff\xff\xff", b"\x0a\x02\xff\xfe"):
        assert "Unable to parse request" in refused(site, message)


def test_fields_in_an_unusual_order_mean_the_same(site: Site) -> None:
    request = raw("INT8", [1, 2])
    tensor = pb.ModelInferRequest(raw_input_contents=request.raw_input_contents).SerializeToString()
    request.ClearField("raw_input_contents")
    unknown = b"\xf8\x07\x01"  # field 127, a varint
    for message in (tensor + request.SerializeToString(), request.SerializeToString() + unknown + tensor):
        assert site.infer(message).raw_output_contents == [b"\x01\x02"]


class TestInputs:
    @pytest.mark.parametrize(
        ("change", "text"),
        [
            (
                lambda request: request.inputs[0].contents.fp32_contents.extend([1, 2]),
                "contents field must not be specified when using raw_input_contents for 'X' for model 'int32'",
            ),
            (
                lambda request: request.raw_input_contents.pop(),
                "unable to find data for input tensor 'X' for model 'int32' in request",
            ),
            (
                lambda request: request.raw_input_contents.append(b""),
                "expected 1 raw input contents but got 2",
            ),
            (
                lambda request: request.raw_input_contents.__setitem__(0, b"abc"),
                "input byte size mismatch for input 'X'. Expected 8, got 3",
            ),
            (lambda request: setattr(request.inputs[0], "datatype", "FLOAT"), "did you mean 'FP32'?"),
            (
                lambda request: request.inputs[0].shape.append(-1),
                "All input dimensions should be specified for input 'X' for model",
            ),
            (lambda request: request.inputs[0].shape.extend([2**40, 2**40]), "exceed maximum size"),
            (lambda request: request.inputs[0].shape.extend([1] * 100), "more than 64 dimensions"),
            (
                lambda request: request.outputs.add(name="Z"),
                "unexpected inference output 'Z' for model 'int32' (its outputs: 'Y')",
            ),
        ],
    )
    def test_wrong(self, site: Site, change: Any, text: str) -> None:
        request = raw("INT32", [1, 2])
        change(request)
        assert text in refused(site, request)

    def test_the_same_input_twice(self, site: Site) -> None:
        request = raw("INT32", [1, 2])
        request.inputs.append(request.inputs[0])
        request.raw_input_contents.append(request.raw_input_contents[0])
        assert "input 'X' already exists in request" in refused(site, request)

    @pytest.mark.parametrize(
        ("datatype", "field", "values", "text"),
        [
            (
                "INT32",
                "fp32_contents",
                [1, 2],
                "unexpected explicit tensor data for input tensor 'X' for model 'int32' of type 'FP32', expected "
                "datatype 'INT32'",
            ),
            ("FP16", "fp32_contents", [1, 2], "FP16 can only be sent in raw_input_contents"),
            ("INT32", "int_contents", [1], "Expected 8, got 4"),
            ("INT32", "int_contents", [1, 2, 3], "Expected 8, got 12"),
            ("BYTES", "bytes_contents", [b"a"], "expected 2 string elements for inference input 'X', got 1"),
            ("INT8", "int_contents", [300, 2], "out of range for INT8"),
            ("UINT8", "uint_contents", [256, 2], "out of range for UINT8"),
        ],
    )
    def test_typed_contents_that_do_not_fit(
        self, site: Site, datatype: str, field: str, values: list[Any], text: str
    ) -> None:
        assert text in refused(site, typed(datatype, field, values))

    def test_two_typed_fields(self, site: Site) -> None:
        request = typed("INT32", "int_contents", [1, 2])
        request.inputs[0].contents.fp32_contents.append(1)
        assert "binary data was already supplied" in refused(site, request)

    def test_empty_contents_are_a_tensor_without_elements(self, site: Site) -> None:
        request = question("INT32", (0, 2))
        request.inputs[0].contents.SetInParent()
        assert site.infer(request).raw_output_contents == [b""]
        request.inputs[0].shape[0] = 1
        assert "Expected 8, got 0" in refused(site, request)


class TestParameters:
    @pytest.mark.parametrize(
        ("key", "value", "text"),
        [
            ("sequence_id", parameter(True), WRONG_TYPE.format("sequence_id", "int64_param or string_param")),
            ("sequence_start", parameter(1), WRONG_TYPE.format("sequence_start", "bool_param")),
            ("sequence_end", parameter("x"), WRONG_TYPE.format("sequence_end", "bool_param")),
            ("priority", parameter(-1), "invalid value for 'priority', expected value >= 0"),
            ("priority", parameter("x"), WRONG_TYPE.format("priority", "int64_param or uint64_param")),
            ("timeout", parameter(4, "uint64_param"), WRONG_TYPE.format("timeout", "int64_param")),
            ("timeout", parameter(-4), "invalid value for 'timeout', expected value >= 0"),
            ("triton_x", parameter(True), "parameter keys starting with 'triton_' are reserved for Triton usage"),
            (
                "triton_enable_empty_final_response",
                parameter(1),
                "invalid value type for 'triton_enable_empty_final_response' parameter, expected bool_param",
            ),
            ("mine", pb.InferParameter(), "invalid value type for 'mine' parameter, expected int64_param, bool_param"),
            ("mine", parameter(5, "uint64_param"), "invalid value type for 'mine' parameter"),
        ],
    )
    def test_of_the_wrong_type(self, site: Site, key: str, value: Any, text: str) -> None:
        request = raw("INT8", [1, 2])
        request.parameters[key].CopyFrom(value)
        assert text in refused(site, request)

    def test_reach_the_request(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []
        servable = site.engine.servable("int8", "")
        monkeypatch.setattr(servable, "infer", asked.append)
        request = raw("INT8", [1, 2])
        for key, value in (("a", 1), ("b", True), ("c", "d"), ("e", 1.5), ("priority", 2), ("timeout", 3)):
            request.parameters[key].CopyFrom(parameter(value))
        request.parameters["sequence_id"].CopyFrom(parameter(-3))
        request.parameters["sequence_end"].CopyFrom(parameter(True))
        for _ in range(2):  # the second time from memory
            found = site.service.find(b"/inference.GRPCInferenceService/ModelInfer")
            assert found is not None
            assert found.serve is not None
            found.serve(FakeCall(), request.SerializeToString())
        for one in asked:
            assert one.parameters == {"a": 1, "b": True, "c": "d", "e": 1.5}
            assert (one.priority, one.timeout_us, one.sequence_id) == (2, 3, 2**64 - 3)
            assert (one.sequence_start, one.sequence_end) == (False, True)
        assert asked[0].parameters is not asked[1].parameters

    def test_forwarded_metadata(self, tmp_path: Path) -> None:
        site = Site(tmp_path, Forwarding("^x-.*"))
        asked = []
        site.engine.servable("int8", "").infer = asked.append  # type: ignore[method-assign]
        found = site.service.find(b"/inference.GRPCInferenceService/ModelInfer")
        assert found is not None
        assert found.serve is not None
        found.serve(FakeCall(metadata={b"x-user": b"me", b"other": b"1"}), raw("INT8", [1, 2]).SerializeToString())
        assert asked[0].parameters == {"x-user": "me"}
        site.close()


class TestOutputs:
    def test_the_one_asked_for(self, site: Site) -> None:
        request = raw("INT8", [1, 2])
        request.outputs.add(name="Y")
        request.outputs.add(name="Y")
        assert [output.name for output in site.infer(request).outputs] == ["Y"]

    def test_classes(self, site: Site) -> None:
        request = raw("FP32", [0.5, 3, 3, 1, 2, 0], (2, 3), model="rows")
        request.outputs.add(name="Y").parameters["classification"].CopyFrom(parameter(2))
        answer = site.infer(request)
        assert (answer.outputs[0].datatype, list(answer.outputs[0].shape)) == ("BYTES", [2, 2])
        words = [b"3.000000:1", b"3.000000:2", b"2.000000:1", b"1.000000:0"]
        assert answer.raw_output_contents[0] == b"".join(struct.pack("<I", len(word)) + word for word in words)

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (parameter(0), "invalid value for 'classification' parameter, expected >= 0"),
            (parameter("1"), "invalid value type for 'classification' parameter, expected int64_param"),
        ],
    )
    def test_classes_that_are_none(self, site: Site, value: Any, text: str) -> None:
        request = raw("INT8", [1, 2])
        request.outputs.add(name="Y").parameters["classification"].CopyFrom(value)
        assert text in refused(site, request)

    def test_classes_of_what_has_no_order(self, site: Site) -> None:
        request = raw("BOOL", [True, False])
        request.outputs.add(name="Y").parameters["classification"].CopyFrom(parameter(1))
        assert "class result not available for output due to unsupported type" in refused(site, request)


def test_cancelling_takes_the_request_along(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    gone: list[Any] = []
    monkeypatch.setattr(site.engine.servable("int8", ""), "infer", asked.append)
    monkeypatch.setattr(site.engine, "cancel", gone.append)
    found = site.service.find(b"/inference.GRPCInferenceService/ModelInfer")
    assert found is not None
    assert found.serve is not None
    call = FakeCall()
    found.serve(call, raw("INT8", [1, 2]).SerializeToString())
    call.cancel()
    assert gone == asked != []


@pytest.mark.parametrize("bits", range(0, 400, 7))
def test_a_damaged_message_gets_an_answer(site: Site, bits: int) -> None:
    request = raw("INT8", [1, 2], id="i")
    request.parameters["a"].CopyFrom(parameter(1))
    request.outputs.add(name="Y").parameters["classification"].CopyFrom(parameter(1))
    message = bytearray(request.SerializeToString())
    message[bits // 8 % len(message)] ^= 1 << bits % 8
    allowed = {None, Status.INVALID_ARGUMENT, Status.NOT_FOUND}
    refusal = None
    try:
        site.infer(bytes(message))
    except RefusedError as error:
        refusal = error
    assert (refusal and refusal.status) in allowed, refusal


def test_bfloat16_is_what_it_was(site: Site) -> None:
    values = np.array([1.0078125, -3], dtype=ml_dtypes.bfloat16)
    request = question("BF16")
    request.raw_input_contents.append(values.tobytes())
    assert site.infer(request).raw_output_contents == [values.tobytes()]
