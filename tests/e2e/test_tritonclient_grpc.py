"""NVIDIA's own Python client over gRPC, unmodified, through every method; and its asyncio twin."""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from bug_models import Shared
from model_folders import DATATYPES, onnx_mark, write_identity
from numpy.typing import NDArray
from python_repository import DECOUPLED, write_script
from serving import DEADLINE_SECONDS, TensorServer, eventually
from test_tritonclient_http import SAMPLES
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

Client = triton.InferenceServerClient


@pytest.fixture
def client(shared: Shared) -> Iterator[Client]:
    with Client(f"127.0.0.1:{shared.server.grpc_port}") as made:
        yield made


@pytest.fixture(scope="module")
def streaming(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Iterator[TensorServer]:
    """A server of Python models that run what they are sent: ``once`` answers once, ``many`` is decoupled."""
    base = tmp_path_factory.mktemp("streaming")
    write_script(base / "repository", "once")
    write_script(base / "repository", "many", DECOUPLED)
    with TensorServer(base / "repository", base / "server.log", plugins=plugins) as server:
        yield server
        assert "Traceback" not in server.log_text


def given(array: NDArray[Any], datatype: str, name: str = "X") -> triton.InferInput:
    tensor = triton.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor


def rows(*values: float) -> NDArray[np.float32]:
    return np.array([[value] * 3 for value in values], np.float32)


def code(text: str) -> list[triton.InferInput]:
    return [given(np.array([text.encode()], dtype=object), "BYTES", "CODE")]


def repeat(count: int) -> list[triton.InferInput]:
    """Have a decoupled model answer 0, 1, ... and then say that this is all."""
    return code(
        f"sender = request.get_response_sender(); [sender.send(said(n)) for n in range({count})]; "
        "sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"
    )


def said(result: triton.InferResult) -> Any:
    return json.loads(result.as_numpy("ANSWER")[0])


# Health, metadata, configuration.


def test_health(client: Client) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("fp32")
    assert client.is_model_ready("fp32", "1")
    assert not client.is_model_ready("fp32", "2")
    assert not client.is_model_ready("nobody")


def test_metadata(client: Client) -> None:
    server = client.get_server_metadata()
    assert server.name == "triton"
    assert {"model_repository", "binary_tensor_data", "statistics"} <= set(server.extensions)
    assert client.get_model_metadata("rows", as_json=True) == {
        "name": "rows",
        "versions": ["1"],
        "platform": "identity",
        "inputs": [{"name": "X", "datatype": "FP32", "shape": ["-1", "3"]}],
        "outputs": [{"name": "Y", "datatype": "FP32", "shape": ["-1", "3"]}],
    }


def test_model_config(client: Client) -> None:
    config = client.get_model_config("rows").config
    assert (config.name, config.backend, config.max_batch_size) == ("rows", "identity", 4)
    assert list(config.dynamic_batching.preferred_batch_size) == [4]


def test_an_unknown_model_is_an_error_with_status_and_message(client: Client) -> None:
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'nobody' is not found") as caught:
        client.get_model_metadata("nobody")
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


# Inference.


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_comes_back(client: Client, datatype: str) -> None:
    array = SAMPLES[datatype]
    result = client.infer(datatype.lower(), [given(array, datatype)])
    answered = result.as_numpy("Y")
    assert result.get_output("Y").datatype == datatype
    if datatype == "BYTES":
        assert [item.decode() for item in answered] == array.tolist()
    else:
        np.testing.assert_array_equal(answered.astype(array.dtype), array)


@pytest.mark.parametrize("algorithm", [None, "gzip", "deflate"])
def test_a_large_tensor_comes_back(client: Client, algorithm: str | None) -> None:
    array = np.arange(2_000_000, dtype=np.int32)
    result = client.infer("int32", [given(array, "INT32")], compression_algorithm=algorithm)
    np.testing.assert_array_equal(result.as_numpy("Y"), array)


def test_typed_contents_through_the_stub(shared: Shared) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{shared.server.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.ModelInferRequest(model_name="int64", id="t")
        request.inputs.add(name="X", datatype="INT64", shape=[2]).contents.int64_contents.extend([-(2**63), 7])
        answer = stub.ModelInfer(request)
        assert np.frombuffer(answer.raw_output_contents[0], np.int64).tolist() == [-(2**63), 7]
        assert answer.id == "t"


def test_classification(client: Client) -> None:
    array = np.float32([[0.5, 3.25, 1], [7, -1, 0]])
    result = client.infer("labelled", [given(array, "FP32")], outputs=[triton.InferRequestedOutput("Y", class_count=2)])
    texts = [[item.decode() for item in row] for row in result.as_numpy("Y")]
    assert texts == [["3.250000:1:dög", "1.000000:2"], ["7.000000:0:cat", "0.000000:2"]]


def test_parameters_headers_and_version_are_taken(client: Client) -> None:
    result = client.infer(
        "rows",
        [given(rows(1), "FP32")],
        model_version="1",
        request_id="r",
        priority=0,
        timeout=1_000_000,
        headers={"x-trace": "1", "authorization": "Bearer t"},
        parameters={"text": "t", "number": 1, "truth": True},
    )
    assert result.get_response().id == "r"
    assert result.as_numpy("Y").tolist() == [[1, 1, 1]]


def test_the_clients_own_mistakes_are_explained(client: Client) -> None:
    with pytest.raises(InferenceServerException, match=r"Expected \[-1,3\], got \[3\]") as caught:
        client.infer("rows", [given(np.zeros(3, np.float32), "FP32")], request_id="r7")
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert "[request id: r7]" in caught.value.message()


def test_async_infer_answers_each_question_with_its_own(client: Client) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    for number in range(64):
        client.async_infer(
            "rows",
            [given(rows(number), "FP32")],
            lambda result, error: answers.put((result, error)),
            request_id=str(number),
        )
    for _ in range(64):
        result, error = answers.get(timeout=DEADLINE_SECONDS)
        assert error is None
        number = int(result.get_response().id or 0)
        assert result.as_numpy("Y").tolist() == [[number] * 3]


# Statistics, settings, model control.


def test_statistics(client: Client, shared: Shared) -> None:
    write_identity(shared.repository, "counted", dims="[ 3 ]", more="max_batch_size: 4")
    client.load_model("counted")
    client.infer("counted", [given(rows(1, 2), "FP32")])
    with pytest.raises(InferenceServerException):
        client.infer("counted", [given(rows(1, 2, 3, 4, 5), "FP32")])
    (stats,) = client.get_inference_statistics("counted", "1").model_stats
    assert (stats.inference_count, stats.execution_count, stats.inference_stats.success.count) == (2, 1, 1)
    assert [batch.batch_size for batch in stats.batch_stats] == [2]
    assert "counted" in {row.name for row in client.get_inference_statistics().model_stats}


def test_trace_and_log_settings(client: Client) -> None:
    settings = client.get_trace_settings(as_json=True)["settings"]
    assert settings["trace_level"]["value"] == ["OFF"]
    changed = client.update_trace_settings(model_name="fp32", settings={"trace_rate": "5"}, as_json=True)
    assert changed["settings"]["trace_rate"]["value"] == ["5"]
    cleared = client.update_trace_settings(model_name="fp32", settings={"trace_rate": None}, as_json=True)
    assert cleared["settings"]["trace_rate"] == settings["trace_rate"]
    with pytest.raises(InferenceServerException, match="Request for unknown model : nobody"):
        client.get_trace_settings("nobody")
    log = client.get_log_settings().settings
    assert log["log_info"].bool_param
    assert not client.update_log_settings({"log_info": False}).settings["log_info"].bool_param
    assert client.update_log_settings({"log_info": True}).settings["log_info"].bool_param
    with pytest.raises(InferenceServerException, match="log file location can not be updated"):
        client.update_log_settings({"log_file": "x"})


def test_index_load_and_unload(client: Client, shared: Shared) -> None:
    write_identity(shared.repository, "steered")
    assert "steered" in {row.name for row in client.get_model_repository_index().models}
    client.load_model("steered")
    assert client.is_model_ready("steered")
    client.unload_model("steered", unload_dependents=True)
    assert not client.is_model_ready("steered")
    eventually(
        lambda: (
            ("steered", "UNAVAILABLE", "unloaded")
            in {(row.name, row.state, row.reason) for row in client.get_model_repository_index().models}
        ),
        "the index says that it was unloaded",
    )


def test_load_with_a_config_and_with_files(client: Client) -> None:
    config = json.dumps({"backend": "onnxruntime", "max_batch_size": 2})
    client.load_model("brought", config=config, files={"file:1/model.onnx": onnx_mark(4).SerializeToString()})
    assert client.get_model_config("brought").config.max_batch_size == 2
    assert client.infer("brought", [given(np.float32([[1, 2]]), "FP32")]).as_numpy("second").tolist() == [[5, 6]]
    with pytest.raises(InferenceServerException, match="load failed for model 'hopeless_grpc'"):
        client.load_model("hopeless_grpc", config="{}", files={"file:1/model.onnx": b"no model" * 500_000})


# Streams.


class Stream:
    """One stream of a client, and what comes over it."""

    def __init__(self, port: int, **options: Any) -> None:
        self.client = Client(f"127.0.0.1:{port}")
        self._answers: queue.Queue[Any] = queue.Queue()
        self.client.start_stream(lambda result, error: self._answers.put((result, error)), **options)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.stop_stream()
        self.client.close()

    def next(self) -> triton.InferResult:
        result, error = self._answers.get(timeout=DEADLINE_SECONDS)
        if error is not None:
            raise error
        return result


def test_thousands_of_requests_over_one_stream_are_answered_in_order(client: Client, shared: Shared) -> None:
    with Stream(shared.server.grpc_port) as stream:
        for number in range(3000):
            stream.client.async_stream_infer("rows", [given(rows(number), "FP32")], request_id=str(number))
        for number in range(3000):
            result = stream.next()
            response = result.get_response()
            assert response.id == str(number)
            assert response.parameters["triton_final_response"].bool_param
            assert result.as_numpy("Y")[0, 0] == number


def test_a_decoupled_model_answers_thousands_of_times(streaming: TensorServer) -> None:
    with Stream(streaming.grpc_port) as stream:
        stream.client.async_stream_infer("many", repeat(3000), request_id="a", enable_empty_final_response=True)
        for number in range(3000):
            assert said(stream.next()) == number
        last = stream.next().get_response()
        assert (last.id, last.model_name, len(last.outputs)) == ("a", "many", 0)
        assert last.parameters["triton_final_response"].bool_param


def test_models_of_both_kinds_over_one_stream(streaming: TensorServer) -> None:
    with Stream(streaming.grpc_port) as stream:
        stream.client.async_stream_infer("many", repeat(2), request_id="m")
        stream.client.async_stream_infer("once", code("answer = 'o'"), request_id="o")
        answers = sorted((result.get_response().id, said(result)) for result in (stream.next() for _ in range(3)))
        assert answers == [("m", 0), ("m", 1), ("o", "o")]
        stream.client.async_stream_infer("once", code("raise ValueError('odd')"))
        with pytest.raises(InferenceServerException, match="ValueError: odd"):
            stream.next()
        stream.client.async_stream_infer("once", code("answer = 'still there'"))
        assert said(stream.next()) == "still there"


def test_the_first_error_ends_a_stream_that_wants_that(streaming: TensorServer) -> None:
    with Stream(streaming.grpc_port, headers={"triton_grpc_error": "true"}) as stream:
        stream.client.async_stream_infer("once", code("raise ValueError('odd')"))
        with pytest.raises(InferenceServerException, match="ValueError: odd") as caught:
            stream.next()
        assert caught.value.status() == "StatusCode.INTERNAL"


def test_unary_calls_to_a_decoupled_model_are_refused(streaming: TensorServer) -> None:
    with (
        Client(f"127.0.0.1:{streaming.grpc_port}") as client,
        pytest.raises(InferenceServerException, match="doesn't support models with decoupled") as caught,
    ):
        client.infer("many", repeat(1))
    assert caught.value.status() == "StatusCode.UNIMPLEMENTED"


WAIT = (
    "sender = request.get_response_sender(); sender.send(said('begun'))\n"
    "while not request.is_cancelled(): time.sleep(0.002)\n"
    "open({path!r}, 'w').close(); sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"
)


def test_a_stream_that_is_cancelled_cancels_its_requests(streaming: TensorServer, tmp_path: Path) -> None:
    with Stream(streaming.grpc_port) as stream:
        stream.client.async_stream_infer("many", code(WAIT.format(path=str(tmp_path / "told"))))
        assert said(stream.next()) == "begun"
        stream.client.stop_stream(cancel_requests=True)
        eventually((tmp_path / "told").exists, "the model is told that nobody waits")


def test_a_deadline_that_passes_cancels_the_request(streaming: TensorServer, tmp_path: Path) -> None:
    wait = WAIT.format(path=str(tmp_path / "told")).replace("; sender.send(said('begun'))", "")
    wait = wait.replace("sender.send(flags=", "sender.send(said(1), flags=")
    with (
        Client(f"127.0.0.1:{streaming.grpc_port}") as client,
        pytest.raises(InferenceServerException, match="Deadline Exceeded"),
    ):
        client.infer("once", code(wait + "; result = [None]"), client_timeout=0.3)
    eventually((tmp_path / "told").exists, "the model is told that nobody waits")


# gRPC's own health check, and the asyncio client.


def test_the_standard_health_check(shared: Shared) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{shared.server.grpc_port}") as channel:
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"") == b"\x08\x01"
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        assert next(watch) == b"\x08\x01"
        watch.cancel()


def test_the_asyncio_client(shared: Shared, streaming: TensorServer) -> None:
    async def talk() -> None:
        async with triton_aio.InferenceServerClient(f"127.0.0.1:{shared.server.grpc_port}") as client:
            assert await client.is_server_live()
            assert await client.is_server_ready()
            assert await client.is_model_ready("fp32")
            assert (await client.get_server_metadata()).name == "triton"
            assert list((await client.get_model_metadata("rows")).versions) == ["1"]
            assert (await client.get_model_config("rows")).config.max_batch_size == 4
            assert "fp32" in {row.name for row in (await client.get_model_repository_index()).models}
            assert (await client.get_inference_statistics("fp32")).model_stats[0].name == "fp32"
            ask = partial(client.infer, "rows")
            answers = await asyncio.gather(*(ask([given(rows(number), "FP32")]) for number in range(60)))
            for number, result in enumerate(answers):
                assert result.as_numpy("Y").tolist() == [[number] * 3]
            with pytest.raises(InferenceServerException, match="'nobody' is not found"):
                await client.infer("nobody", [given(rows(1), "FP32")])
        async with triton_aio.InferenceServerClient(f"127.0.0.1:{streaming.grpc_port}") as client:
            answers = [said(result) async for result, _ in client.stream_infer(questions())]
            assert sorted(answers) == [0, 0, 1, 1, 2]

    async def questions() -> AsyncIterator[dict[str, Any]]:
        for count in (2, 3):
            yield {"model_name": "many", "inputs": repeat(count)}

    asyncio.run(talk())
