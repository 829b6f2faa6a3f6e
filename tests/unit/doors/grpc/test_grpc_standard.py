"""gRPC's own services: health and reflection. And what importing the messages costs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from bident.doors.grpc import health, reflection
from bident.doors.grpc.call import Status
from bident.doors.grpc.health import Health
from bident.doors.grpc.messages import pb
from bident.errors import Code, ServeError
from tests.unit.doors.grpc.grpc_stage import FakeCall, RefusedError, Site, until

CHECK = b"/grpc.health.v1.Health/Check"
_Response = health.FILE.messages["HealthCheckResponse"]
_Request = health.FILE.messages["HealthCheckRequest"]


@dataclass
class Readiness:
    """Stands in for the engine."""

    is_ready: bool = True
    is_stopping: bool = False

    def check_running(self) -> None:
        if self.is_stopping:
            raise ServeError(Code.UNAVAILABLE, "Server exiting")

    async def check_ready(self) -> bool:
        return self.is_ready


@pytest.mark.parametrize("service", ["", "inference.GRPCInferenceService", "anything"])
def test_check(site: Site, service: str) -> None:
    answer = site.unary(CHECK, _Request(service=service))
    assert _Response.FromString(answer).status == _Response.SERVING


def test_check_while_the_server_stops() -> None:
    engine = Readiness(is_stopping=True)
    with pytest.raises(ServeError, match="Server exiting"):
        asyncio.run(Health(engine).check(FakeCall(), b""))  # type: ignore[arg-type]


def test_check_of_a_server_that_is_not_ready() -> None:
    call = FakeCall()
    asyncio.run(Health(Readiness(is_ready=False)).check(call, b""))  # type: ignore[arg-type]
    assert call.said(_Response)[0].status == _Response.NOT_SERVING


def test_watch_tells_of_every_change_and_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "WATCH_SECONDS", 0.001)

    async def run() -> None:
        engine = Readiness()
        watched = Health(engine)  # type: ignore[arg-type]
        first, second, gone = FakeCall(), FakeCall(), FakeCall()
        for call in (first, gone):
            watched.watch(call)
            call.ask(b"")
            call.half_close()
        await until(lambda: first.answers and gone.answers)
        gone.cancel()
        watched.watch(second)
        second.ask(b"")
        engine.is_ready = False
        await until(lambda: len(first.answers) == 2)
        engine.is_ready = True
        await until(lambda: len(first.answers) == 3)
        engine.is_stopping = True
        await until(lambda: first.is_over and second.is_over)
        assert [answer.status for answer in first.said(_Response)] == [1, 2, 1, 2]
        assert first.status is Status.OK
        assert len(gone.answers) == 1
        later = FakeCall()
        engine.is_stopping = False
        watched.watch(later)
        later.ask(b"")
        await until(lambda: later.answers)
        later.cancel()
        await until(lambda: watched._watching is None)

    asyncio.run(run())


class Reflected:
    """One call of server reflection."""

    def __init__(self, site: Site, version: str) -> None:
        self.call = FakeCall()
        found = site.service.find(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo".encode())
        assert found is not None
        assert found.open is not None
        found.open(self.call)
        self._messages = reflection.FILES[version].messages

    def ask(self, **fields: Any) -> Any:
        self.call.ask(self._messages["ServerReflectionRequest"](**fields))
        return self.call.said(self._messages["ServerReflectionResponse"])[-1]


@pytest.fixture(params=["v1", "v1alpha"])
def reflected(site: Site, request: pytest.FixtureRequest) -> Reflected:
    return Reflected(site, request.param)


def test_reflection_lists_the_services(reflected: Reflected) -> None:
    services = [service.name for service in reflected.ask(list_services="*").list_services_response.service]
    assert services == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "inference.GRPCInferenceService",
    ]
    reflected.call.half_close()
    assert reflected.call.status is Status.OK


@pytest.mark.parametrize(
    "symbol",
    [
        "inference.GRPCInferenceService",
        "inference.GRPCInferenceService.ModelInfer",
        "inference.ModelInferRequest",
        "inference.ModelInferRequest.InferInputTensor",
        "inference.DataType",
        "grpc.health.v1.Health",
        "grpc.health.v1.HealthCheckResponse.ServingStatus",
        "grpc.reflection.v1.ServerReflection",
    ],
)
def test_reflection_gives_files_that_stand_on_their_own(reflected: Reflected, symbol: str) -> None:
    answer = reflected.ask(file_containing_symbol=symbol)
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(file)
        for file in answer.file_descriptor_response.file_descriptor_proto
    ]
    pool = descriptor_pool.DescriptorPool()
    for file in reversed(files):
        pool.Add(file)
    assert pool.FindFileContainingSymbol(symbol.removesuffix(".ModelInfer")).name == files[0].name
    again = reflected.ask(file_by_filename=files[0].name)
    assert again.file_descriptor_response == answer.file_descriptor_response


def test_reflection_of_what_there_is_not(reflected: Reflected) -> None:
    assert reflected.ask(file_containing_symbol="a.B").error_response.error_code == Status.NOT_FOUND
    assert "'x.proto'" in reflected.ask(file_by_filename="x.proto").error_response.error_message
    assert reflected.ask().error_response.error_code == Status.NOT_FOUND
    reflected.call.ask(b"\xff\xff")
    assert reflected.call.status is Status.INVALID_ARGUMENT


def test_a_check_that_is_no_message(site: Site) -> None:
    with pytest.raises(RefusedError, match="Unable to parse request"):
        site.unary(CHECK, b"\xff\xff")


def test_the_service_imports_no_grpcio_and_leaves_tritonclient_as_it_is() -> None:
    code = (
        "import sys; import bident.doors.grpc.service as s; "
        "assert 'grpc' not in sys.modules and 'tritonclient.grpc' not in sys.modules, 'grpcio was imported'; "
        "import tritonclient.grpc as t; assert t.service_pb2.ModelInferRequest is s.pb.ModelInferRequest"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_messages_are_those_of_tritonclient() -> None:
    from tritonclient.grpc import service_pb2

    assert service_pb2.ModelInferRequest is pb.ModelInferRequest
