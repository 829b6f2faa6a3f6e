"""All other methods of the inference service: what they answer and what they refuse, in Triton's words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bident.doors.access import Api
from bident.doors.grpc import service
from bident.doors.grpc.call import Status
from bident.doors.grpc.messages import pb
from tests.unit.doors.grpc.grpc_stage import RefusedError, Site

PARAMETER = pb.ModelRepositoryParameter
METHODS = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods


@pytest.fixture
def controlled(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path, control="explicit")
    yield site
    site.close()


def refused(site: Site, method: str, **fields: Any) -> tuple[Status, str]:
    with pytest.raises(RefusedError) as caught:
        site.ask(method, **fields)
    return caught.value.status, caught.value.details


def test_every_method_is_served_and_has_an_api(site: Site) -> None:
    for method in METHODS:
        found = site.service.find(f"/inference.GRPCInferenceService/{method.name}".encode())
        assert found is not None, method.name
        assert isinstance(found.api, Api)
        assert (found.open is not None) == method.client_streaming
        assert (found.serve is None) == method.client_streaming
    assert site.service.find(b"/inference.GRPCInferenceService/Nope") is None


def test_health_and_readiness(site: Site) -> None:
    assert site.ask("ServerLive").live
    assert site.ask("ServerReady").ready
    assert site.ask("ModelReady", name="fp32").ready
    assert site.ask("ModelReady", name="fp32", version="1").ready
    assert not site.ask("ModelReady", name="fp32", version="2").ready
    assert not site.ask("ModelReady", name="nobody").ready


def test_metadata(site: Site) -> None:
    server = site.ask("ServerMetadata")
    assert (server.name, server.version) == ("test", "0")
    assert "binary_tensor_data" in server.extensions
    model = site.ask("ModelMetadata", name="rows")
    assert (model.name, list(model.versions), model.platform) == ("rows", ["1"], "identity")
    assert (model.inputs[0].name, model.inputs[0].datatype, list(model.inputs[0].shape)) == ("X", "FP32", [-1, 3])
    assert list(site.ask("ModelMetadata", name="fp32").outputs[0].shape) == [-1, -1]


def test_configuration(site: Site) -> None:
    config = site.ask("ModelConfig", name="rows").config
    assert (config.name, config.backend, config.max_batch_size) == ("rows", "identity", 8)
    assert list(config.input[0].dims) == [3]


def test_statistics(site: Site) -> None:
    (row,) = site.ask("ModelStatistics", name="rows").model_stats
    assert (row.name, row.version, row.inference_count) == ("rows", "1", 0)
    request = pb.ModelInferRequest(model_name="rows", raw_input_contents=[b"\0" * 24])
    request.inputs.add(name="X", datatype="FP32", shape=[2, 3])
    site.infer(request)
    (row,) = site.ask("ModelStatistics", name="rows", version="1").model_stats
    assert (row.inference_count, row.execution_count, row.inference_stats.success.count) == (2, 1, 1)
    assert [size.batch_size for size in row.batch_stats] == [2]
    assert row.last_inference > 0
    assert len(site.ask("ModelStatistics").model_stats) > 5


def test_index(site: Site) -> None:
    models = site.ask("RepositoryIndex", ready=True).models
    assert [model.name for model in models] == sorted(model.name for model in models)
    assert {(model.version, model.state) for model in models} == {("1", "READY")}


@pytest.mark.parametrize("method", ["ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"])
def test_versions_that_are_none(site: Site, method: str) -> None:
    status, text = refused(site, method, name="fp32", version="x")
    assert status is Status.INVALID_ARGUMENT
    assert "failed to get model version from specified version string 'x'" in text


@pytest.mark.parametrize("method", ["ModelMetadata", "ModelConfig"])
def test_models_that_there_are_not(site: Site, method: str) -> None:
    assert "Request for unknown model: 'nobody' is not found" in refused(site, method, name="nobody")[1]
    assert refused(site, method, name="fp32", version="9")[0] is Status.NOT_FOUND


def test_statistics_of_models_that_there_are_not(site: Site) -> None:
    assert "requested model 'nobody' is not available" in refused(site, "ModelStatistics", name="nobody")[1]


@pytest.mark.parametrize("method", ["RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"])
def test_one_of_the_repositories(site: Site, method: str) -> None:
    status, text = refused(site, method, repository_name="x")
    assert status is Status.UNIMPLEMENTED
    assert "'repository_name' specification is not supported" in text


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"config": PARAMETER(int64_param=1)}, "value type for load parameter 'config', expected string_param"),
        ({"file:1/a": PARAMETER(string_param="x")}, "value type for load parameter 'file:1/a', expected bytes_param"),
        ({"odd": PARAMETER(string_param="x")}, "unrecognized load parameter 'odd'"),
    ],
)
def test_load_parameters_that_do_not_fit(controlled: Site, parameters: dict[str, Any], text: str) -> None:
    status, said = refused(controlled, "RepositoryModelLoad", model_name="fp32", parameters=parameters)
    assert status is Status.INVALID_ARGUMENT
    assert text in said


def test_load_and_unload(controlled: Site) -> None:
    controlled.ask("RepositoryModelUnload", model_name="fp32")
    assert not controlled.ask("ModelReady", name="fp32").ready
    controlled.ask("RepositoryModelLoad", model_name="fp32")
    assert controlled.ask("ModelReady", name="fp32").ready
    flag = {"unload_dependents": PARAMETER(bool_param=True), "odd": PARAMETER(int64_param=1)}
    controlled.ask("RepositoryModelUnload", model_name="nobody", parameters=flag)
    flag = {"unload_dependents": PARAMETER(int64_param=1)}
    text = refused(controlled, "RepositoryModelUnload", model_name="fp32", parameters=flag)[1]
    assert "invalid value type for 'unload_dependents' parameter, expected bool_param" in text


@pytest.mark.parametrize("read_here", [1 << 20, 10])
def test_load_with_files(controlled: Site, monkeypatch: pytest.MonkeyPatch, read_here: int) -> None:
    monkeypatch.setattr(service, "READ_HERE", read_here)
    tensors = (
        '"max_batch_size": 4, "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [2]}], '
        '"output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [2]}]'
    )
    file = PARAMETER(bytes_param=b"a" * 2000)
    parameters = {"config": PARAMETER(string_param=f'{{"backend": "nobody", {tensors}}}'), "file:1/model.txt": file}
    assert "nobody" in refused(controlled, "RepositoryModelLoad", model_name="sent", parameters=parameters)[1]
    parameters["config"].string_param = f'{{"backend": "identity", {tensors}}}'
    controlled.ask("RepositoryModelLoad", model_name="sent", parameters=parameters)
    assert controlled.ask("ModelConfig", name="sent").config.max_batch_size == 4


def test_model_control_in_another_mode(site: Site) -> None:
    status, text = refused(site, "RepositoryModelLoad", model_name="fp32")
    assert status is Status.UNAVAILABLE
    assert "explicit model load / unload is not allowed if polling is enabled" in text


def test_shared_memory(site: Site) -> None:
    assert dict(site.ask("SystemSharedMemoryStatus").regions) == {}
    status, text = refused(site, "SystemSharedMemoryStatus", name="r")
    assert (status, text) == (Status.NOT_FOUND, "Unable to find system shared memory region: 'r'")
    key = "/there-is-no-such-memory"
    text = refused(site, "SystemSharedMemoryRegister", name="r", key=key, byte_size=4)[1]
    assert f"Unable to open shared memory region: '{key}'" in text
    site.ask("SystemSharedMemoryUnregister", name="r")
    assert dict(site.ask("CudaSharedMemoryStatus").regions) == {}
    status, text = refused(site, "CudaSharedMemoryRegister", name="r", raw_handle=b"x", byte_size=4)
    assert (status, "GPUs not supported" in text) == (Status.INVALID_ARGUMENT, True)
    site.ask("CudaSharedMemoryUnregister")


@pytest.mark.parametrize("method", [method.name for method in METHODS if not method.client_streaming])
def test_bytes_that_are_no_message(site: Site, method: str) -> None:
    with pytest.raises(RefusedError, match="Unable to parse request") as caught:
        site.unary(method, b"\xff\xff\xff\xff")
    assert caught.value.status is Status.INVALID_ARGUMENT
