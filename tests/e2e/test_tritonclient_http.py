"""NVIDIA's own Python client over HTTP, unmodified, through every method that this server has; and its asyncio twin."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from bug_models import Shared
from model_folders import DATATYPES, onnx_mark, write_identity
from numpy.typing import NDArray
from serving import eventually
from tritonclient.utils import InferenceServerException

SAMPLES: dict[str, NDArray[Any]] = {
    "BOOL": np.array([True, False, True]),
    "UINT8": np.array([0, 255], np.uint8),
    "UINT16": np.array([0, 65535], np.uint16),
    "UINT32": np.array([0, 2**32 - 1], np.uint32),
    "UINT64": np.array([0, 2**64 - 1], np.uint64),
    "INT8": np.array([-128, 127], np.int8),
    "INT16": np.array([-32768, 32767], np.int16),
    "INT32": np.array([-(2**31), 2**31 - 1], np.int32),
    "INT64": np.array([-(2**63), 2**63 - 1], np.int64),
    "FP16": np.array([1.5, -0.0, 65504], np.float16),
    "FP32": np.array([1.5, -0.0, 3.4e38], np.float32),
    "FP64": np.array([1.5, -0.0, 1e308], np.float64),
    "BF16": np.array([1.5, -0.0, 3e38], ml_dtypes.bfloat16),
    "BYTES": np.array(["", "ф€", "three"], dtype=object),
}


@pytest.fixture
def client(shared: Shared) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{shared.server.port}", concurrency=4) as made:
        yield made


def given(array: NDArray[Any], datatype: str, name: str = "X", *, binary: bool = True) -> triton.InferInput:
    tensor = triton.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def rows(*values: float) -> NDArray[np.float32]:
    return np.array([[value] * 3 for value in values], np.float32)


# Health, metadata, configuration.


def test_health(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("fp32")
    assert client.is_model_ready("fp32", "1")
    assert not client.is_model_ready("fp32", "2")
    assert not client.is_model_ready("nobody")


def test_server_metadata(client: triton.InferenceServerClient) -> None:
    metadata = client.get_server_metadata()
    assert metadata["name"] == "triton"
    assert {"model_repository", "model_configuration", "binary_tensor_data", "statistics"} <= set(
        metadata["extensions"]
    )


def test_model_metadata(client: triton.InferenceServerClient) -> None:
    assert client.get_model_metadata("rows") == {
        "name": "rows",
        "versions": ["1"],
        "platform": "identity",
        "inputs": [{"name": "X", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [{"name": "Y", "datatype": "FP32", "shape": [-1, 3]}],
    }
    assert client.get_model_metadata("rows", "1")["versions"] == ["1"]


def test_model_config(client: triton.InferenceServerClient) -> None:
    config = client.get_model_config("rows")
    assert (config["name"], config["backend"], config["max_batch_size"]) == ("rows", "identity", 4)
    assert config["input"][0] | {"name": "X", "data_type": "TYPE_FP32", "dims": [3]} == config["input"][0]
    assert config["dynamic_batching"]["preferred_batch_size"] == [4]


def test_an_unknown_model_is_an_error_with_status_and_message(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.get_model_metadata("nobody")
    assert caught.value.status() == "400"
    assert "Request for unknown model: 'nobody' is not found" in caught.value.message()


# Inference.


WAYS_IN = [(datatype, True) for datatype in DATATYPES] + [
    (datatype, False)
    for datatype in DATATYPES
    if datatype not in ("FP16", "BF16")  # which the client itself refuses to write as JSON
]


@pytest.mark.parametrize("binary_out", [True, False], ids=["binary-out", "json-out"])
@pytest.mark.parametrize(("datatype", "binary_in"), WAYS_IN)
def test_every_datatype_comes_back(
    client: triton.InferenceServerClient, datatype: str, binary_in: bool, binary_out: bool
) -> None:
    array = SAMPLES[datatype]
    result = client.infer(
        datatype.lower(),
        [given(array, datatype, binary=binary_in)],
        outputs=[triton.InferRequestedOutput("Y", binary_data=binary_out)],
    )
    answered = result.as_numpy("Y")
    assert result.get_output("Y")["datatype"] == datatype
    assert result.get_output("Y")["shape"] == list(array.shape)
    if datatype == "BYTES":
        assert [item.decode() if isinstance(item, bytes) else item for item in answered] == array.tolist()
    else:
        np.testing.assert_array_equal(np.signbit(answered.astype(float)), np.signbit(array.astype(float)))
        np.testing.assert_array_equal(answered.astype(array.dtype), array)


def test_without_named_outputs_everything_comes_in_binary(client: triton.InferenceServerClient) -> None:
    inputs = [given(np.float32([1, 2]), "FP32", "x"), given(np.float32([3]), "FP32", "y")]
    result = client.infer("pair", inputs, request_id="all")
    assert result.get_response()["id"] == "all"
    assert [output["parameters"]["binary_data_size"] for output in result.get_response()["outputs"]] == [8, 4]
    assert result.as_numpy("from_x").tolist() == [1, 2]
    assert result.as_numpy("from_y").tolist() == [3]
    assert result.as_numpy("nope") is None


@pytest.mark.parametrize("binary", [True, False])
def test_empty_tensors(client: triton.InferenceServerClient, binary: bool) -> None:
    output = triton.InferRequestedOutput("Y", binary_data=binary)
    result = client.infer("fp32", [given(np.empty(0, np.float32), "FP32", binary=binary)], outputs=[output])
    assert result.as_numpy("Y").shape == (0,)


@pytest.mark.parametrize("outgoing", [None, "gzip", "deflate"])
@pytest.mark.parametrize("incoming", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_compression_both_ways(
    client: triton.InferenceServerClient, outgoing: str | None, incoming: str | None, binary: bool
) -> None:
    array = np.arange(3000, dtype=np.int32)
    result = client.infer(
        "int32",
        [given(array, "INT32", binary=binary)],
        outputs=[triton.InferRequestedOutput("Y", binary_data=binary)],
        request_compression_algorithm=outgoing,
        response_compression_algorithm=incoming,
    )
    np.testing.assert_array_equal(result.as_numpy("Y"), array)


@pytest.mark.parametrize("binary", [True, False])
def test_classification(client: triton.InferenceServerClient, binary: bool) -> None:
    array = np.float32([[0.5, 3.25, 1], [7, -1, 0]])
    output = triton.InferRequestedOutput("Y", binary_data=binary, class_count=2)
    result = client.infer("labelled", [given(array, "FP32")], outputs=[output])
    texts = [[item.decode() if isinstance(item, bytes) else item for item in row] for row in result.as_numpy("Y")]
    assert texts == [["3.250000:1:dög", "1.000000:2"], ["7.000000:0:cat", "0.000000:2"]]


def test_parameters_headers_query_and_version_are_taken(client: triton.InferenceServerClient) -> None:
    result = client.infer(
        "rows",
        [given(rows(1), "FP32")],
        model_version="1",
        request_id="r",
        priority=0,
        timeout=1_000_000,
        headers={"X-Trace": "1", "Authorization": "Bearer t"},
        query_params={"a": "b c"},
        parameters={"text": "t", "number": 1, "truth": True, "real": 1.5},
    )
    assert result.get_response()["id"] == "r"
    assert result.as_numpy("Y").tolist() == [[1, 1, 1]]


def test_the_clients_own_mistakes_are_explained(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.infer("rows", [given(np.zeros(3, np.float32), "FP32")], request_id="r7")
    assert caught.value.status() == "400"
    assert "[request id: r7]" in caught.value.message()
    assert "Expected [-1,3], got [3]" in caught.value.message()


def test_async_infer_answers_each_question_with_its_own(client: triton.InferenceServerClient) -> None:
    asked = [client.async_infer("rows", [given(rows(number), "FP32")], request_id=str(number)) for number in range(64)]
    for number, request in enumerate(asked):
        result = request.get_result(timeout=20)
        assert result.get_response()["id"] == str(number)
        assert result.as_numpy("Y").tolist() == [[number] * 3]


def test_a_body_made_and_parsed_without_sending_it(client: triton.InferenceServerClient, shared: Shared) -> None:
    body, header_length = triton.InferenceServerClient.generate_request_body([given(rows(1, 2), "FP32")])
    headers = {"Inference-Header-Content-Length": str(header_length)}
    answer = shared.ask.post("/v2/models/rows/infer", bytes(body), headers)
    result = triton.InferenceServerClient.parse_response_body(
        answer.body, header_length=int(answer.headers["inference-header-content-length"])
    )
    assert result.as_numpy("Y").tolist() == rows(1, 2).tolist()


# Statistics.


def test_statistics(client: triton.InferenceServerClient, shared: Shared) -> None:
    write_identity(shared.repository, "measured", dims="[ 3 ]", more="max_batch_size: 4")
    client.load_model("measured")
    client.infer("measured", [given(rows(1, 2), "FP32")])
    with pytest.raises(InferenceServerException):
        client.infer("measured", [given(rows(1, 2, 3, 4, 5), "FP32")])
    (stats,) = client.get_inference_statistics("measured", "1")["model_stats"]
    assert (stats["name"], stats["version"]) == ("measured", "1")
    assert (stats["inference_count"], stats["execution_count"]) == (2, 1)
    assert stats["inference_stats"]["success"]["count"] == 1
    assert [batch["batch_size"] for batch in stats["batch_stats"]] == [2]
    figures = stats["inference_stats"]
    parts = sum(figures[part]["ns"] for part in ("queue", "compute_input", "compute_infer", "compute_output"))
    assert 0 < parts <= figures["success"]["ns"]
    everything = client.get_inference_statistics()["model_stats"]
    assert "measured" in {row["name"] for row in everything}


# Model control.


def test_index_load_and_unload(client: triton.InferenceServerClient, shared: Shared) -> None:
    write_identity(shared.repository, "controlled")
    assert {"name": "controlled"} in client.get_model_repository_index()
    client.load_model("controlled")
    row = {"name": "controlled", "version": "1", "state": "READY"}
    assert row in client.get_model_repository_index()
    assert client.is_model_ready("controlled")
    client.unload_model("controlled", unload_dependents=True)
    assert not client.is_model_ready("controlled")
    unloaded = row | {"state": "UNAVAILABLE", "reason": "unloaded"}
    eventually(lambda: unloaded in client.get_model_repository_index(), "the index says that it was unloaded")


def test_load_with_a_config_and_with_files(client: triton.InferenceServerClient) -> None:
    config = json.dumps({"backend": "onnxruntime", "max_batch_size": 2})
    client.load_model("carried", config=config, files={"file:1/model.onnx": onnx_mark(4).SerializeToString()})
    assert client.get_model_config("carried")["max_batch_size"] == 2
    result = client.infer("carried", [given(np.float32([[1, 2]]), "FP32")])
    assert result.as_numpy("second").tolist() == [[5, 6]]
    client.load_model("carried", config=config, files={"file:1/model.onnx": onnx_mark(5).SerializeToString()})
    assert client.infer("carried", [given(np.float32([[1, 2]]), "FP32")]).as_numpy("first").tolist() == [[6, 7]]


def test_a_load_that_fails_says_why(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="load failed for model 'hopeless'") as caught:
        client.load_model("hopeless", config="{}", files={"file:1/model.onnx": b"no model"})
    assert "model.onnx" in caught.value.message()
    with pytest.raises(InferenceServerException, match="failed to poll from model repository"):
        client.load_model("absent")


# The asyncio client.


def test_the_asyncio_client(shared: Shared) -> None:
    async def talk() -> None:
        async with triton_aio.InferenceServerClient(f"127.0.0.1:{shared.server.port}") as client:
            assert await client.is_server_live()
            assert await client.is_server_ready()
            assert await client.is_model_ready("fp32")
            assert (await client.get_server_metadata())["name"] == "triton"
            assert (await client.get_model_metadata("rows"))["versions"] == ["1"]
            assert (await client.get_model_config("rows"))["max_batch_size"] == 4
            assert "fp32" in {row["name"] for row in await client.get_model_repository_index()}
            await client.load_model("aio", config="{}", files={"file:1/model.onnx": onnx_mark(1).SerializeToString()})
            assert await client.is_model_ready("aio")
            await client.unload_model("aio")
            assert (await client.get_inference_statistics("fp32"))["model_stats"][0]["name"] == "fp32"
            await _infer_many(client)
            with pytest.raises(InferenceServerException, match="'nobody' is not found"):
                await client.infer("nobody", [given(rows(1), "FP32")])

    async def _infer_many(client: triton_aio.InferenceServerClient) -> None:
        async def question(number: int) -> Any:
            return await client.infer(
                "rows",
                [given(rows(number), "FP32", binary=number % 2 == 0)],
                outputs=[triton_aio.InferRequestedOutput("Y", binary_data=number % 3 == 0)],
                request_id=str(number),
                request_compression_algorithm=[None, "gzip", "deflate"][number % 3],
                response_compression_algorithm=[None, "deflate", "gzip"][number % 3],
            )

        for number, result in enumerate(await asyncio.gather(*(question(number) for number in range(60)))):
            assert result.get_response()["id"] == str(number)
            assert result.as_numpy("Y").tolist() == [[number] * 3]

    asyncio.run(talk())
