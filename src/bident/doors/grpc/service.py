"""The table of methods: what each one is served by, and what access rules call it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from bident.doors.access import Api
from bident.doors.aside import READ_HERE, aside
from bident.doors.forwarding import Forwarding
from bident.doors.grpc import health, reflection
from bident.doors.grpc.call import Buffer, Call, Method
from bident.doors.grpc.control import Control
from bident.doors.grpc.infer_request import parse
from bident.doors.grpc.inference import Inference
from bident.doors.grpc.messages import pb
from bident.doors.grpc.queries import Queries
from bident.doors.grpc.stream_infer import InferStream
from bident.engine.engine import Engine
from bident.model import proto

_SERVICE = "inference.GRPCInferenceService"


class GrpcService:
    """Serves ``inference.GRPCInferenceService`` of one engine, gRPC's health check, and reflection."""

    def __init__(self, engine: Engine, *, name: str, version: str, forwarding: Forwarding | None = None) -> None:
        """``name`` and ``version`` are what the server says of itself; ``forwarding``: of metadata to parameters."""
        self._methods: dict[bytes, Method] = {}
        inference = Inference(engine, forwarding)
        self._add("ModelInfer", Method(serve=inference.model_infer, api=Api.INFERENCE))
        self._add("ModelStreamInfer", Method(open=partial(_open_stream, inference), api=Api.INFERENCE))
        self._add_queries(Queries(engine, name=name, version=version))
        self._add_control(Control(engine))
        self._add_standard(engine)

    def find(self, method: bytes) -> Method | None:
        """How ``method`` (``/package.Service/Method``) is served; None if it is not."""
        return self._methods.get(method)

    def _add(self, name: str, method: Method, service: str = _SERVICE) -> None:
        self._methods[f"/{service}/{name}".encode()] = method

    def _add_queries(self, queries: Queries) -> None:
        for name, answer, api in (
            ("ServerLive", queries.server_live, Api.HEALTH),
            ("ServerReady", queries.server_ready, Api.HEALTH),
            ("ModelReady", queries.model_ready, Api.HEALTH),
            ("ServerMetadata", queries.server_metadata, Api.METADATA),
            ("ModelMetadata", queries.model_metadata, Api.METADATA),
            ("ModelConfig", queries.model_config, Api.MODEL_CONFIG),
            ("ModelStatistics", queries.model_statistics, Api.STATISTICS),
            ("RepositoryIndex", queries.repository_index, Api.MODEL_REPOSITORY),
        ):
            self._add_unary(name, answer, api)

    def _add_control(self, control: Control) -> None:
        for name, answer, api in (
            ("RepositoryModelLoad", control.load, Api.MODEL_REPOSITORY),
            ("RepositoryModelUnload", control.unload, Api.MODEL_REPOSITORY),
            ("SystemSharedMemoryStatus", control.system_memory_status, Api.SHARED_MEMORY),
            ("SystemSharedMemoryRegister", control.system_memory_register, Api.SHARED_MEMORY),
            ("SystemSharedMemoryUnregister", control.system_memory_unregister, Api.SHARED_MEMORY),
            ("CudaSharedMemoryStatus", control.cuda_memory_status, Api.SHARED_MEMORY),
            ("CudaSharedMemoryRegister", control.cuda_memory_register, Api.SHARED_MEMORY),
            ("CudaSharedMemoryUnregister", control.cuda_memory_unregister, Api.SHARED_MEMORY),
            ("TraceSetting", control.trace_setting, Api.TRACE),
            ("LogSettings", control.log_settings, Api.LOGGING),
        ):
            self._add_unary(name, answer, api)

    def _add_unary(self, name: str, answer: Callable[[Any], Any], api: Api) -> None:
        kind = getattr(pb, f"{name}Request")
        self._add(name, Method(serve=partial(_serve, kind, answer), api=api))

    def _add_standard(self, engine: Engine) -> None:
        checks = health.Health(engine)
        self._add("Check", Method(serve=checks.check, api=Api.HEALTH), "grpc.health.v1.Health")
        self._add("Watch", Method(open=checks.watch, api=Api.HEALTH), "grpc.health.v1.Health")
        reflected = reflection.Reflection(
            [
                proto.pb.DESCRIPTOR.serialized_pb,
                pb.DESCRIPTOR.serialized_pb,
                health.FILE.serialized,
                *(file.serialized for file in reflection.FILES.values()),
            ]
        )
        for version in reflection.FILES:
            method = Method(open=reflected.open(version), api=Api.METADATA)
            self._add("ServerReflectionInfo", method, f"grpc.reflection.{version}.ServerReflection")


def _open_stream(inference: Inference, call: Call) -> None:
    InferStream(inference, call)  # the call holds it


def _serve(kind: Any, answer: Callable[[Any], Any], call: Call, message: Buffer) -> Awaitable[None] | None:
    """Answer a unary call with what ``answer`` makes of its message, which is a ``kind``."""
    if len(message) > READ_HERE:  # load requests may bring hundreds of megabytes of files
        return _serve_long(kind, answer, call, message)
    said = answer(parse(kind, message))
    if isinstance(said, Awaitable):
        return _reply_later(call, said)
    call.reply(said.SerializeToString())
    return None


async def _serve_long(kind: Any, answer: Callable[[Any], Any], call: Call, message: Buffer) -> None:
    said = answer(await aside(partial(parse, kind, message)))
    call.reply((await said if isinstance(said, Awaitable) else said).SerializeToString())


async def _reply_later(call: Call, said: Awaitable[Any]) -> None:
    call.reply((await said).SerializeToString())
