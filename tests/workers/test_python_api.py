"""What ``pb_utils`` offers, and how it refuses: as a real Triton 2.51 does, in the same words."""

# ruff: noqa: E501 - error texts are quoted whole

from __future__ import annotations

import numpy as np
import pytest

from bident.backends.python.messages import Request
from bident.errors import Code

MODEL_EXCEPTION = "TritonModelException"


@pytest.fixture(scope="module")
def script():
    from worker_driving import MODELS, Driver, spec_of

    driver = Driver(spec_of(MODELS / "script"))
    yield driver
    driver.worker.close()


NAMES = [
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "ResponseIterator",
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "shared_memory",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]


def test_every_name_of_triton_is_there(script):
    assert script.script(f"answer = [n for n in {NAMES} if not hasattr(pb_utils, n)]") == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("answer = pb_utils.Tensor('a', np.zeros((2, 3))).shape()", [2, 3]),
        ("answer = pb_utils.Tensor('a', np.zeros((2, 3), order='F')).as_numpy().flags.c_contiguous", True),
        ("answer = pb_utils.Tensor('a', np.zeros(())).shape()", []),
        ("answer = pb_utils.Tensor('a', np.zeros(1)).is_cpu()", True),
        ("answer = pb_utils.Tensor('é', np.zeros(1)).name()", "é"),
        ("answer = pb_utils.Tensor('a', np.zeros(1, '>f4')).as_numpy().dtype.str", "<f4"),
        ("answer = pb_utils.Tensor('a', np.array([b'x'])).as_numpy().tolist()[0].decode()", "x"),
        ("answer = pb_utils.Tensor('a', np.array(['é'])).as_numpy()[0].decode()", "é"),
        ("answer = pb_utils.Tensor('a', np.array(['a', 3], dtype=object)).as_numpy().tolist()", ["a", 3]),
        (
            "answer = [pb_utils.Tensor('a', np.zeros(1, t)).triton_dtype() for t in ('?', 'f4', 'i8', object)]",
            [1, 11, 9, 13],
        ),
        ("answer = pb_utils.Tensor('a', np.zeros(2)).__dlpack_device__()", [1, 0]),
        ("answer = pb_utils.InferenceResponse([]).has_error()", False),
        ("answer = pb_utils.InferenceResponse().error()", None),
        ("answer = pb_utils.InferenceResponse(error=pb_utils.TritonError('é')).error().message()", "é"),
        ("answer = pb_utils.TritonError('x').code() == pb_utils.TritonError.INTERNAL", True),
        (
            "answer = [getattr(pb_utils.TritonError, n).value for n in ('UNKNOWN', 'INTERNAL', 'NOT_FOUND', 'INVALID_ARG',"
            " 'UNAVAILABLE', 'UNSUPPORTED', 'ALREADY_EXISTS', 'CANCELLED')]",
            list(range(8)),
        ),
        (
            "answer = pb_utils.InferenceResponse([], None, {'a': True, 'b': 2, 'c': 'ü'}).parameters()",
            '{"a": true, "b": 2, "c": "ü"}',
        ),
        (
            "answer = pb_utils.serialize_byte_tensor(np.array([b'ab', 'é'], dtype=object)).hex()",
            "020000006162" + "02000000c3a9",
        ),
        ("answer = pb_utils.serialize_byte_tensor(np.array([], dtype=object))", []),
        ("answer = pb_utils.serialize_byte_tensor(np.zeros(1))", None),
        ("answer = [x.decode() for x in pb_utils.deserialize_bytes_tensor(b'\\2\\0\\0\\0ab\\0\\0\\0\\0')]", ["ab", ""]),
        ("answer = pb_utils.triton_string_to_numpy('TYPE_FP32') is np.float32", True),
        ("answer = [pb_utils.triton_to_numpy_type(n).__name__ for n in (1, 11, 13)]", ["bool", "float32", "object_"]),
        (
            "answer = [pb_utils.numpy_to_triton_type(t) for t in (np.bool_, np.float32, np.object_, np.bytes_, complex)]",
            [1, 11, 13, 13, None],
        ),
        (
            "answer = pb_utils.get_input_config_by_name({'input': [{'name': 'A', 'dims': [1]}]}, 'A')",
            {"name": "A", "dims": [1]},
        ),
        ("answer = pb_utils.get_output_config_by_name({'output': []}, 'A')", None),
        (
            "answer = pb_utils.using_decoupled_model_transaction_policy({'model_transaction_policy': {'decoupled': True}})",
            True,
        ),
        ("answer = pb_utils.using_decoupled_model_transaction_policy({})", False),
        ("answer = pb_utils.get_input_tensor_by_name(request, 'nope')", None),
        ("answer = pb_utils.get_output_tensor_by_name(pb_utils.InferenceResponse([]), 'nope')", None),
        ("request.set_flags(3); answer = request.flags()", 3),
        ("answer = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 1).preferred_device_id", 1),
        (
            "answer = [pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL, pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,"
            " pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END, pb_utils.TRITONSERVER_REQUEST_RELEASE_ALL,"
            " pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE]",
            [1, 1, 2, 1, 2],
        ),
        ("answer = type(pb_utils.shared_memory.free_memory()).__name__", "int"),
        (
            "r = pb_utils.InferenceRequest(model_name='x', inputs=[], requested_output_names=['b', 'a', 'b'], request_id='r',"
            " correlation_id='é', flags=1, timeout=7, model_version=2); answer = [r.request_id(), r.correlation_id(), r.flags(),"
            " r.timeout(), sorted(r.requested_output_names()), r.inputs(), r.parameters(), r.is_cancelled()]",
            ["r", "é", 1, 7, ["a", "b"], [], "{}", False],
        ),
    ],
)
def test_what_it_gives(script, code, expected):
    assert script.script(code) == expected


REQUEST = "pb_utils.InferenceRequest(model_name='x', inputs=[], requested_output_names=['a']"


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        ("pb_utils.Tensor('', np.zeros(1))", MODEL_EXCEPTION, "Tensor name cannot be an empty string."),
        ("pb_utils.Tensor('a', np.float32(1))", "TypeError", "takes a numpy.ndarray, found <class 'numpy.float32'>"),
        ("pb_utils.Tensor('a', [1.0])", "TypeError", "takes a numpy.ndarray, found <class 'list'>"),
        ("pb_utils.Tensor(3, np.zeros(1))", "TypeError", "takes a name of type str"),
        ("pb_utils.Tensor('a', np.zeros(1, complex))", MODEL_EXCEPTION, "NumPy dtype is not supported."),
        ("pb_utils.Tensor('a', np.zeros(1, 'M8[s]'))", MODEL_EXCEPTION, "NumPy dtype is not supported."),
        ("pb_utils.Tensor('a', np.array([b'a'], object)).to_dlpack()", MODEL_EXCEPTION, "TYPE_BYTES tensors cannot be converted to DLPack."),
        ("pb_utils.Tensor.from_dlpack('', np.zeros(1))", MODEL_EXCEPTION, "Tensor name cannot be an empty string."),
        ("pb_utils.Tensor.from_dlpack('b', 5)", MODEL_EXCEPTION, "Provided tensor is not supported. Tensor must be a DLPack capsule"),
        ("pb_utils.Tensor.from_dlpack('b', np.zeros((2, 3)).T)", MODEL_EXCEPTION, "DLPack tensor is not contiguous."),
        ("pb_utils.InferenceResponse([None])", MODEL_EXCEPTION, "Output tensor for inference response should not be empty."),
        ("pb_utils.InferenceResponse([3])", "TypeError", "found <class 'int'>"),
        ("pb_utils.InferenceResponse(error='x')", "TypeError", "pb_utils.TritonError"),
        ("pb_utils.InferenceResponse([], None, {'a': 1.5})", MODEL_EXCEPTION, "Expect parameters values to have type bool/int/str, found type <class 'float'>"),
        ("pb_utils.InferenceResponse([], None, {'a': None})", MODEL_EXCEPTION, "found type <class 'NoneType'>"),
        ("pb_utils.InferenceResponse([], None, {1: 2})", MODEL_EXCEPTION, "Expect parameters keys to have type str, found type <class 'int'>"),
        ("pb_utils.InferenceResponse([], None, [1])", MODEL_EXCEPTION, "found type <class 'list'>"),
        ("pb_utils.InferenceResponse([], None, {'a': 2**70})", MODEL_EXCEPTION, "64 bits"),
        ("pb_utils.TritonError('x', 99)", "TypeError", "found <class 'int'>"),
        ("pb_utils.TritonError(3)", "TypeError", "found <class 'int'>"),
        (REQUEST + ", parameters={'a': 1.5})", MODEL_EXCEPTION, "Expect parameters values to have type bool/int/str, found type <class 'float'>"),
        (REQUEST + ", correlation_id=1.5)", MODEL_EXCEPTION, "Correlation ID must be integer or string"),
        (REQUEST + ", correlation_id=-1)", MODEL_EXCEPTION, "unsigned 64-bit"),
        ("pb_utils.InferenceRequest(inputs=[], requested_output_names=['a'])", "TypeError", "model_name"),
        ("pb_utils.InferenceRequest(model_name='x', inputs=[None], requested_output_names=['a'])", MODEL_EXCEPTION,
         "Input tensor for request with id '' and model name 'x' should not be empty."),
        ("pb_utils.InferenceRequest(model_name='x', inputs=[], requested_output_names=[''])", MODEL_EXCEPTION,
         "Requested output name for request with id '' and model name 'x' should not be empty."),
        (REQUEST + ").get_response_sender()", MODEL_EXCEPTION, "response sender"),
        ("request.set_release_flags(9)", MODEL_EXCEPTION, "release flags 9"),
        ("pb_utils.Logger.log(3)", "TypeError", "found <class 'int'>"),
        ("pb_utils.load_model('m', files={'x': 'y'})", "TypeError", "Object of type 'str' is not an instance of 'bytes'"),
        ("pb_utils.deserialize_bytes_tensor(b'\\5\\0\\0\\0ab')", "error", "requires"),
    ],
)  # fmt: skip
def test_what_it_refuses(script, call, kind, text):
    found = script.script(f"answer = caught(lambda: {call})")
    assert found is not None, "it was not refused"
    assert found[0] == kind
    assert text in found[1]


def test_dlpack_looks_in_place_and_forgets(script):
    code = """
import gc
from bident_worker import dlpack
a = np.arange(6, dtype=np.float32).reshape(2, 3)
t = pb_utils.Tensor('a', a)
there = np.from_dlpack(t)
there_and_back = pb_utils.Tensor.from_dlpack('b', t)
there_and_back.as_numpy()[0, 0] = 9
unused = t.to_dlpack()
answer = [there.tolist(), a[0, 0].item(), there_and_back.as_numpy().tolist(), len(dlpack._exported)]
del there, there_and_back, unused
gc.collect()
answer.append(len(dlpack._exported))
capsule = t.to_dlpack()
pb_utils.Tensor.from_dlpack('c', capsule)
answer.append(caught(lambda: pb_utils.Tensor.from_dlpack('c', capsule))[1])
answer += [pb_utils.Tensor.from_dlpack('d', pb_utils.Tensor('d', np.zeros((0, 2), dt))).as_numpy().dtype.str for dt in ('?', 'i1', 'f2', 'u8')]
"""
    answer = script.script(code)
    changed = [[9.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert answer[:4] == [changed, 9.0, changed, 3]
    assert answer[4] == 0
    assert "used already" in answer[5]
    assert answer[6:] == ["|b1", "|i1", "<f2", "<u8"]


def test_bf16_exists_only_for_dlpack(script):
    code = "answer = caught(lambda: pb_utils.get_input_tensor_by_name(request, 'X').as_numpy())[1]"
    import ml_dtypes

    inputs = {"CODE": np.array([code.encode()], object), "X": np.zeros(2, ml_dtypes.bfloat16)}
    reply = script.run(Request(inputs=inputs))[0]
    assert b"Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack()" in reply.outputs["ANSWER"][0]


def test_response_parameters_and_errors_come_back_with_their_codes(script):
    reply = script.fail("response = pb_utils.InferenceResponse([], None, {'schlüssel': 'ü', 'n': 3, 'b': True})")
    assert reply.parameters == {"schlüssel": "ü", "n": 3, "b": True}
    assert reply.outputs == {}
    for name in ("NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED", "UNKNOWN"):
        code = (
            f"response = pb_utils.InferenceResponse(error=pb_utils.TritonError('mine €', pb_utils.TritonError.{name}))"
        )
        error = script.fail(code).error
        assert (error.code, error.message) == (Code[name], "mine €")


def test_an_error_outweighs_outputs(script):
    code = (
        "response = pb_utils.InferenceResponse([pb_utils.Tensor('a', np.zeros(1))], error=pb_utils.TritonError('mine'))"
    )
    reply = script.fail(code)
    assert (reply.error.code, reply.error.message, reply.outputs) == (Code.INTERNAL, "mine", {})


def test_odd_outputs_travel(script):
    code = """
response = pb_utils.InferenceResponse([
    pb_utils.Tensor('S', np.array([b'ab', b'c'])), pb_utils.Tensor('U', np.array([['é', '']])),
    pb_utils.Tensor('O', np.array(['text', b'\\xff', 3], dtype=object)), pb_utils.Tensor('Z', np.array(2.5)),
    pb_utils.Tensor('T', np.arange(6).reshape(2, 3).T)])
"""
    outputs = script.fail(code).outputs
    assert outputs["S"].tolist() == [b"ab", b"c"]
    assert outputs["U"].tolist() == [["é".encode(), b""]]
    assert outputs["O"].tolist() == [b"text", b"\xff", b"3"]
    assert outputs["Z"].shape == ()
    assert outputs["T"].tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.skipif(int(np.__version__[0]) < 2, reason="numpy 1 has no StringDType")
def test_numpy_2_strings_are_taken(script):
    code = "response = pb_utils.InferenceResponse([pb_utils.Tensor('S', np.array(['é', 'b'], dtype=np.dtypes.StringDType()))])"
    assert script.fail(code).outputs["S"].tolist() == ["é".encode(), b"b"]


def test_the_logger_writes_to_the_servers_log(script):
    import logging

    from bident.backends.python.messages import LogLine

    script.events.clear()
    script.script(
        "L = pb_utils.Logger; L.log('plain'); L.log('warnung ü', L.WARNING); L.log_info('i'); L.log_warn('w');"
        "L.log_error('e'); L.log_verbose('v'); L.log('x', pb_utils.Logger.LogLevel.ERROR)"
    )
    lines = [event for event in script.events if isinstance(event, LogLine)]
    expected = [
        ("plain", logging.INFO),
        ("warnung ü", logging.WARNING),
        ("i", logging.INFO),
        ("w", logging.WARNING),
        ("e", logging.ERROR),
        ("v", logging.DEBUG),
        ("x", logging.ERROR),
    ]
    assert [(line.message, line.level) for line in lines] == expected
    assert lines[0].file == "<string>"
    assert lines[0].line == 1


CONFIG = {
    "name": "m",
    "max_batch_size": 4,
    "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [],
}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("c.set_max_batch_size(2)", "configuration specified max_batch_size 4, but in auto-complete-config function for model 'm' specified max_batch_size 2"),
        ("c.add_input({'name': 'A', 'data_type': 'TYPE_INT8', 'dims': [1]})", "unable to load model 'm', configuration expects datatype TYPE_FP32 for input 'A', model provides TYPE_INT8"),
        ("c.add_input({'name': 'A', 'data_type': 'TYPE_FP32', 'dims': [2]})", "model 'm', tensor 'A': the model expects dims [2] but the model configuration specifies dims [1]"),
        ("c.add_input({'name': 'B', 'data_type': 'TYPE_FP32', 'dims': [2], 'x': 1})", "input 'B' in auto-complete-config function for model 'm' contains property other than 'name', 'data_type', 'dims' and 'optional'."),
        ("c.add_output({'name': 'B', 'data_type': 'TYPE_FP32', 'dims': [2], 'optional': True})", "output 'B' in auto-complete-config function for model 'm' contains property other than 'name', 'data_type' and 'dims'."),
        ("c.add_input({'data_type': 'TYPE_FP32', 'dims': [2]})", "input in auto-complete-config function for model 'm' is missing 'name' property."),
        ("c.add_output({'name': 'B', 'dims': [2]})", "output 'B' in auto-complete-config function for model 'm' is missing 'data_type' property."),
        ("c.add_output({'name': 'B', 'data_type': 'TYPE_FP32'})", "output 'B' in auto-complete-config function for model 'm' is missing 'dims' property."),
        ("c.set_model_transaction_policy({'x': True})", "contains property other than 'decoupled'."),
        ("c.set_model_transaction_policy({'decoupled': True}); c.set_model_transaction_policy({'decoupled': False})", "trying to change decoupled property in auto-complete-config for model 'm', which is already set to 'True'."),
        ("c.as_dict()['sequence_batching'] = {}; c.set_dynamic_batching()", "Configuration specified scheduling_choice as 'sequence_batching', but auto-complete-config function for model 'm' tries to set scheduling_choice as 'dynamic_batching'"),
    ],
)  # fmt: skip
def test_model_config_refuses_contradictions(script, change, text):
    code = f"""
import json
c = pb_utils.ModelConfig(json.dumps({CONFIG}))
def change():
    {change}
answer = caught(change)
"""
    kind, message = script.script(code)
    assert kind == "ValueError"
    assert text in message


def test_model_config_takes_what_agrees(script):
    code = f"""
import json
c = pb_utils.ModelConfig(json.dumps({CONFIG}))
c.set_max_batch_size(8); c.set_dynamic_batching(); c.set_dynamic_batching()
c.add_input({{'name': 'A', 'data_type': 'TYPE_FP32', 'dims': [1], 'optional': True}})
c.add_input({{'name': 'B', 'data_type': 'TYPE_INT8', 'dims': [-1]}})
c.add_output({{'name': 'O', 'data_type': 'TYPE_STRING', 'dims': [1]}})
c.set_model_transaction_policy({{'decoupled': True}})
answer = c.as_dict()
"""
    assert script.script(code) == {
        "name": "m",
        "max_batch_size": 8,
        "dynamic_batching": {},
        "input": [
            {"name": "A", "data_type": "TYPE_FP32", "dims": [1], "optional": True},
            {"name": "B", "data_type": "TYPE_INT8", "dims": [-1]},
        ],
        "output": [{"name": "O", "data_type": "TYPE_STRING", "dims": [1]}],
        "model_transaction_policy": {"decoupled": True},
    }
