"""A worker answers: tensors of every kind, in every grouping, in and out."""

# ruff: noqa: E501 - models are written in one line

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from bident.backends.python.messages import Answers, BatchDone, Request

ALL_DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]


def test_a_merged_batch_comes_back_merged(start_worker):
    driver = start_worker("identity")
    rows = np.arange(24, dtype=np.float32).reshape(6, 4)
    replies = driver.run(Request(rows=1), Request(rows=2), Request(rows=3), columns={"IN0": rows})
    answers = [event for event in driver.events if isinstance(event, Answers)]
    assert len(answers) == 1
    assert answers[0].rows == [1, 2, 3]
    np.testing.assert_array_equal(answers[0].columns["OUT0"], rows)
    assert [reply.outputs["OUT0"].shape for reply in replies] == [(1, 4), (2, 4), (3, 4)]
    np.testing.assert_array_equal(replies[2].outputs["OUT0"], rows[3:])


def test_requests_of_unlike_shapes_share_a_batch(start_worker):
    driver = start_worker("identity")
    arrays = [np.ones((1, 2), np.float32), np.ones((1, 3), np.int64), np.array(5.0), np.zeros((0, 2), np.uint8)]
    replies = driver.run(*[Request(inputs={"IN0": array}) for array in arrays])
    assert [reply.index for reply in replies] == [0, 1, 2, 3]
    for array, reply in zip(arrays, replies, strict=True):
        assert reply.outputs["OUT0"].dtype == array.dtype
        assert reply.outputs["OUT0"].shape == array.shape
        np.testing.assert_array_equal(reply.outputs["OUT0"], array)


@pytest.mark.parametrize("size", [1, 3, 5000, 300_000])
@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_every_numeric_datatype_in_every_size(shared_identity, dtype, size):
    array = (np.arange(size) % 100).astype(dtype)
    reply = shared_identity.run(Request(inputs={"IN0": array}))[0]
    assert reply.outputs["OUT0"].dtype == array.dtype
    np.testing.assert_array_equal(reply.outputs["OUT0"], array)


@pytest.fixture(scope="module")
def shared_identity():
    from worker_driving import MODELS, Driver, spec_of

    driver = Driver(spec_of(MODELS / "identity"))
    yield driver
    driver.worker.close()


@pytest.mark.parametrize("count", [1, 2000])
def test_bytes_are_carried_as_they_are(shared_identity, count):
    items = [b"", "ф€\U0001f600".encode(), b"\xff\xfe\x00", b"x" * 50] * count
    array = np.array([*items, None], dtype=object)[:-1].reshape(2, -1)
    reply = shared_identity.run(Request(inputs={"IN0": array}))[0]
    assert reply.outputs["OUT0"].shape == array.shape
    assert reply.outputs["OUT0"].reshape(-1).tolist() == items


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
@pytest.mark.parametrize("dtype", [object, np.float32])
def test_empty_tensors(shared_identity, shape, dtype):
    reply = shared_identity.run(Request(inputs={"IN0": np.empty(shape, dtype)}))[0]
    assert reply.outputs["OUT0"].shape == shape
    assert reply.outputs["OUT0"].dtype == dtype


def test_big_endian_and_strided_arrays_arrive_right(shared_identity):
    for array in (np.arange(6, dtype=">i4"), np.arange(12, dtype=np.float32).reshape(3, 4).T):
        reply = shared_identity.run(Request(inputs={"IN0": array}))[0]
        np.testing.assert_array_equal(reply.outputs["OUT0"], array)


def test_bf16_passes_through(start_worker, write_model):
    folder = write_model(
        "import triton_python_backend_utils as pb\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        "        return [pb.InferenceResponse([pb.Tensor.from_dlpack('OUT', r.inputs()[0].to_dlpack())]) for r in requests]\n"
    )
    driver = start_worker(folder)
    array = np.array([[1.5, -2.25]], dtype=ml_dtypes.bfloat16)
    reply = driver.run(Request(inputs={"IN": array}))[0]
    assert reply.outputs["OUT"].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(reply.outputs["OUT"], array)


def test_only_requested_outputs_come_back(start_worker):
    config = {"output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32"}]}
    driver = start_worker("add_sub", config=config)
    inputs = {"INPUT0": np.full((1, 4), 3, np.float32), "INPUT1": np.ones((1, 4), np.float32)}
    same = driver.run(Request(inputs=inputs, outputs=["OUTPUT1"]), Request(inputs=inputs, outputs=["OUTPUT1"]))
    assert [list(reply.outputs) for reply in same] == [["OUTPUT1"], ["OUTPUT1"]]
    mixed = driver.run(Request(inputs=inputs, outputs=["OUTPUT0"]), Request(inputs=inputs))
    assert [list(reply.outputs) for reply in mixed] == [["OUTPUT0"], ["OUTPUT0", "OUTPUT1"]]
    np.testing.assert_array_equal(mixed[1].outputs["OUTPUT1"], np.full((1, 4), 2, np.float32))


def test_the_worker_says_how_long_execute_took(start_worker):
    driver = start_worker("script")
    driver.script("time.sleep(0.05)")
    done = next(event for event in driver.events if isinstance(event, BatchDone))
    assert 50_000_000 <= done.end_ns - done.start_ns < 5_000_000_000


def test_what_a_request_says_reaches_the_model(script):
    said = script.script(
        "answer = [request.request_id(), request.correlation_id(), request.flags(), request.timeout(),"
        " request.priority(), request.parameters(), sorted(request.requested_output_names()),"
        " request.trace().get_context(), request.is_cancelled()]",
        id="ид-1",
        correlation_id="seq é",
        flags=3,
        timeout_us=1234,
        priority=2,
        parameters={"ключ": "значение", "n": 2**63, "f": 1.5, "b": True},
        outputs=["ANSWER"],
        trace='{"traceparent": "00-1"}',
    )
    parameters = '{"ключ":"значение","n":9223372036854775808,"f":1.5,"b":true}'
    assert said == ["ид-1", "seq é", 3, 1234, 2, parameters, ["ANSWER"], '{"traceparent": "00-1"}', False]


def test_a_plain_request_has_plain_details(script):
    said = script.script(
        "answer = [request.request_id(), request.correlation_id(), request.flags(), request.timeout(),"
        " request.parameters(), request.trace().get_context()]"
    )
    assert said == ["", 0, 0, 0, "{}", None]


def test_inputs_can_be_written_to_and_kept(script):
    code = "x = pb_utils.get_input_tensor_by_name(request, 'X').as_numpy(); x += 1; self.kept.append(x); answer = x.sum().item()"
    for size in (4, 100_000):
        array = np.zeros(size)
        assert script.run(Request(inputs={"CODE": np.array([code.encode()], object), "X": array}))[0].error is None
        assert array.sum() == 0
    # What the model keeps is not given to another request.
    for _ in range(5):
        script.run(Request(inputs={"CODE": np.array([b"pass"], object), "X": np.full(100_000, 7.0)}))
    assert script.script("answer = [k.sum().item() for k in self.kept]") == [4.0, 100_000.0]


def test_outputs_outlive_the_worker(start_worker):
    driver = start_worker("identity")
    array = np.arange(1_000_000, dtype=np.float64)
    output = driver.run(Request(inputs={"IN0": array}))[0].outputs["OUT0"]
    driver.worker.close()
    np.testing.assert_array_equal(output, array)


def test_auto_complete_and_arguments(start_worker):
    from worker_driving import MODELS, spec_of

    from bident.backends.python.host import Worker

    worker = Worker(spec_of(MODELS / "add_sub"))
    try:
        config = worker.complete(20, lambda event: None)
    finally:
        worker.close()
    assert config["max_batch_size"] == 0
    assert config["input"] == [
        {"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]},
        {"name": "INPUT1", "data_type": "TYPE_FP32", "dims": [4]},
    ]
    assert [output["name"] for output in config["output"]] == ["OUTPUT0", "OUTPUT1"]


def test_a_model_without_auto_complete_completes_nothing():
    from worker_driving import MODELS, spec_of

    from bident.backends.python.host import Worker

    worker = Worker(spec_of(MODELS / "identity"))
    try:
        assert worker.complete(20, lambda event: None) is None
        # The same process can go on to initialise the model.
        worker.initialize(20, lambda event: None)
    finally:
        worker.close()


def test_initialize_is_told_what_triton_tells(script):
    folder = Path(__file__).parent / "models" / "script"
    assert script.script("answer = self.args") == {
        "model_config": '{"name": "script", "max_batch_size": 0, "input": [], "output": []}',
        "model_instance_kind": "CPU",
        "model_instance_name": "script_0_0",
        "model_instance_device_id": "0",
        "model_repository": str(folder),
        "model_version": "1",
        "model_name": "script",
    }
    assert script.script(
        "answer = [__import__('sys').modules[type(self).__module__].__file__, type(self).__module__]"
    ) == [
        str(folder / "1" / "model.py"),
        "1.model",
    ]
    assert script.script("answer = pb_utils.get_model_dir()") == str(folder / "1")


def test_a_model_may_import_its_neighbours(start_worker, write_model):
    source = (
        "import channel, tensor\nfrom . import beside\nimport triton_python_backend_utils as pb, numpy as np\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        "        words = [channel.WORD, tensor.WORD, beside.WORD]\n"
        "        return [pb.InferenceResponse([pb.Tensor('OUT', np.array(words, dtype=object))]) for _ in requests]\n"
    )
    # Names that the worker itself uses inside.
    files = {"channel": "WORD = 'c'", "tensor": "WORD = 't'", "beside": "WORD = 'b'"}
    folder = write_model(source, **files)
    driver = start_worker(folder)
    reply = driver.run(Request(inputs={"IN": np.zeros(1)}))[0]
    assert reply.outputs["OUT"].tolist() == [b"c", b"t", b"b"]
    assert sorted(path.name for path in folder.rglob("*")) == ["1", "beside.py", "channel.py", "model.py", "tensor.py"]
