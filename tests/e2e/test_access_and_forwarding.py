"""Restricted APIs and forwarded headers, over both doors, with NVIDIA's clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from serving import TensorServer
from tritonclient.utils import InferenceServerException

CONFIG = """
backend: "python"
input [ { name: "X", data_type: TYPE_FP32, dims: [ 1 ] } ]
output [ { name: "SEEN", data_type: TYPE_STRING, dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU, count: 1 } ]
"""
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        seen = [np.array([request.parameters()], dtype=object) for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", array)]) for array in seen]
"""
FLAGS = (
    "--http-restricted-api=model-repository,statistics:Admin-Key=s3cret",
    "--grpc-restricted-protocol=model-repository,statistics:admin-key=s3cret",
    "--http-header-forward-pattern=^(my-.*|timeout)$",
    "--grpc-header-forward-pattern=^(my-.*|timeout)$",
)
ADMIN = {"admin-key": "s3cret"}
ADMIN_OVER_GRPC = {"triton-grpc-protocol-admin-key": "s3cret"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Iterator[TensorServer]:
    base = tmp_path_factory.mktemp("access")
    folder = base / "models" / "seeing"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(CONFIG)
    (folder / "1" / "model.py").write_text(MODEL)
    with TensorServer(base / "models", base / "log", *FLAGS, plugins=plugins) as running:
        yield running
        assert "Traceback" not in running.log_text


@pytest.fixture
def http(server: TensorServer) -> Iterator[over_http.InferenceServerClient]:
    with over_http.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        yield client


@pytest.fixture
def rpc(server: TensorServer) -> Iterator[over_grpc.InferenceServerClient]:
    with over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        yield client


def seen(client: Any, headers: dict[str, str], parameters: dict[str, Any] | None = None) -> Any:
    """What the model sees of a request's parameters."""
    triton = over_http if isinstance(client, over_http.InferenceServerClient) else over_grpc
    tensor = triton.InferInput("X", [1], "FP32")
    tensor.set_data_from_numpy(np.zeros(1, np.float32))
    result = client.infer("seeing", [tensor], headers=headers, parameters=parameters)
    return json.loads(result.as_numpy("SEEN")[0])


def test_what_is_restricted_wants_its_header(http: Any, rpc: Any) -> None:
    with pytest.raises(InferenceServerException) as refused:
        http.get_model_repository_index()
    assert refused.value.status() == "403"
    assert refused.value.message() == "This API is restricted, expecting header 'Admin-Key'"
    with pytest.raises(InferenceServerException) as refused:
        rpc.get_model_repository_index()
    assert refused.value.status() == str(grpc.StatusCode.UNAVAILABLE)
    assert refused.value.message() == "This protocol is restricted, expecting header 'triton-grpc-protocol-admin-key'"
    for client, wrong in ((http, {"admin-key": "S3CRET"}), (rpc, ADMIN)):
        with pytest.raises(InferenceServerException, match="is restricted"):
            client.get_inference_statistics(headers=wrong)


def test_with_it_there_is_no_difference(http: Any, rpc: Any) -> None:
    assert [row["name"] for row in http.get_model_repository_index(headers=ADMIN)] == ["seeing"]
    assert [row.name for row in rpc.get_model_repository_index(headers=ADMIN_OVER_GRPC).models] == ["seeing"]
    assert http.get_inference_statistics(headers=ADMIN)
    assert rpc.get_inference_statistics(headers=ADMIN_OVER_GRPC)


def test_the_rest_is_open(http: Any, rpc: Any) -> None:
    for client in (http, rpc):
        assert client.is_server_ready()
        assert client.get_model_config("seeing")
        assert seen(client, {}) == {}


def test_headers_that_match_are_seen_by_the_model(http: Any, rpc: Any) -> None:
    assert seen(http, {"my-a": "1", "My-Tenant": "zwölf", "x-my-b": "2"}) == {"my-a": "1", "My-Tenant": "zwölf"}
    assert seen(rpc, {"my-a": "1", "my-tenant": "2", "x-my-b": "2"}) == {"my-a": "1", "my-tenant": "2"}
    for client in (http, rpc):
        assert seen(client, {"my-a": "header"}, {"my-a": 1, "own": True}) == {"my-a": "header", "own": True}


def test_a_reserved_name_is_refused(http: Any, rpc: Any) -> None:
    for client in (http, rpc):
        with pytest.raises(InferenceServerException) as refused:
            seen(client, {"timeout": "1"})
        assert refused.value.message() == "Header 'timeout' is reserved for Triton usage and cannot be forwarded."


def test_every_body_takes_its_headers_along(server: TensorServer) -> None:
    """In a stream of requests that differ in nothing but their headers, raw ones and flat ones."""
    address = f"http://127.0.0.1:{server.port}/v2/models/seeing/infer"
    document = {"inputs": [{"name": "X", "shape": [1], "datatype": "FP32", "data": [0]}]}
    with httpx.Client() as client:
        for value in ("1", "1", "1", "2"):
            answer = client.post(address, json=document, headers={"My-A": value})
            assert json.loads(answer.json()["outputs"][0]["data"][0]) == {"My-A": value}
        raw = client.post(address, content=bytes(4), headers={"My-A": "raw", "Inference-Header-Content-Length": "0"})
        assert b'{"My-A":"raw"}' in raw.content
        flat = client.post(address.replace("/infer", "/generate"), json={"X": 0}, headers={"My-A": "flat"})
        assert json.loads(flat.json()["SEEN"]) == {"My-A": "flat"}


@pytest.mark.parametrize(
    ("flags", "fragment"),
    [
        (
            ("--http-restricted-api=health:a=b", "--http-restricted-api=health,trace:c=d"),
            "'health' can not be specified",
        ),
        (("--grpc-restricted-protocol=helth:a=b",), "unknown restricted api 'helth'"),
        (("--http-header-forward-pattern=(",), "Invalid regex pattern '('"),
        (("--grpc-header-forward-pattern=(a|aa)*b",), "can take very long"),
    ],
)
def test_a_server_with_wrong_rules_does_not_start(
    tmp_path: Path, plugins: Path, flags: tuple[str, ...], fragment: str
) -> None:
    (tmp_path / "models").mkdir()
    server = TensorServer(tmp_path / "models", tmp_path / "log", *flags, plugins=plugins)
    server.start()
    assert server.wait() != 0
    assert fragment in server.log_text
