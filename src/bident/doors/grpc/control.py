"""The methods that change something: model control, shared memory, trace and log settings.

Types and words are Triton's (``grpc_server.cc``).
"""

from __future__ import annotations

from typing import Any

from bident.doors.grpc.messages import pb
from bident.doors.grpc.queries import refuse_repository
from bident.engine.engine import Engine
from bident.errors import ServeError, invalid_arg
from bident.observe.log_settings import FORMATS
from bident.wire.shown import shown

_FILE = "file:"
_MEMORY = "shared_memory"
"""The part of the engine that clients change with the shared memory methods."""


class Control:
    """Does what they ask with one engine. Each method takes its request message and returns its response message."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._memory = engine.shared_memory

    # Models

    async def load(self, request: Any) -> Any:
        """Load or reload a model; the answer comes when it serves, or with the reason why it does not."""
        refuse_repository(request)
        config: str | None = None
        files: dict[str, bytes] = {}
        for key, value in request.parameters.items():
            if key == "config":
                config = _load_parameter(key, value, "string_param")
            elif key.startswith(_FILE):
                files[key.removeprefix(_FILE)] = _load_parameter(key, value, "bytes_param")
            else:
                raise invalid_arg(f"unrecognized load parameter {shown(key)}. Use 'config' or 'file:<version>/<name>'")
        await self._engine.load(request.model_name, config, files)
        return pb.RepositoryModelLoadResponse()

    async def unload(self, request: Any) -> Any:
        """Take a model out of service; the answer comes when no new request reaches it."""
        refuse_repository(request)
        dependents = False
        if "unload_dependents" in request.parameters:
            value = request.parameters["unload_dependents"]
            if value.WhichOneof("parameter_choice") != "bool_param":
                raise invalid_arg("invalid value type for 'unload_dependents' parameter, expected bool_param.")
            dependents = value.bool_param
        await self._engine.unload(request.model_name, dependents=dependents)
        return pb.RepositoryModelUnloadResponse()

    # Shared memory

    def system_memory_status(self, request: Any) -> Any:
        """The registered regions, or one of them."""
        kind = pb.SystemSharedMemoryStatusResponse
        regions = {
            region.name: kind.RegionStatus(**region._asdict()) for region in self._memory.system_regions(request.name)
        }
        return kind(regions=regions)

    async def system_memory_register(self, request: Any) -> Any:
        """Register a region."""
        where = (request.key, request.offset, request.byte_size)
        await self._engine.apply(_MEMORY, "register_system", request.name, *where)
        return pb.SystemSharedMemoryRegisterResponse()

    async def system_memory_unregister(self, request: Any) -> Any:
        """Forget a region, or all."""
        await self._engine.apply(_MEMORY, "unregister_system", request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    def cuda_memory_status(self, request: Any) -> Any:
        """None: there are no GPUs."""
        self._memory.cuda_regions(request.name)
        return pb.CudaSharedMemoryStatusResponse()

    async def cuda_memory_register(self, request: Any) -> Any:
        """Refused: there are no GPUs."""
        where = (request.raw_handle, request.device_id, request.byte_size)
        await self._engine.apply(_MEMORY, "register_cuda", request.name, *where)
        return pb.CudaSharedMemoryRegisterResponse()

    async def cuda_memory_unregister(self, request: Any) -> Any:
        """A success: there is none."""
        await self._engine.apply(_MEMORY, "unregister_cuda", request.name)
        return pb.CudaSharedMemoryUnregisterResponse()

    # Settings

    async def trace_setting(self, request: Any) -> Any:
        """Change the trace settings, of one model or of all, and say what they are now."""
        changes = {key: _trace_value(key, list(value.value)) for key, value in request.settings.items()}
        name = request.model_name
        if changes:
            settings = await self._engine.apply("tracing", "update", name, changes)
        else:
            settings = self._engine.tracing.settings(name)
        answer = pb.TraceSettingResponse()
        for key, value in settings.items():
            answer.settings[key].value.extend(value if isinstance(value, list) else [str(value)])
        return answer

    async def log_settings(self, request: Any) -> Any:
        """Change the log settings, and say what they are now."""
        changes = {key: _log_value(key, value) for key, value in request.settings.items()}
        if changes:
            settings = await self._engine.apply("log_settings", "update", changes)
        else:
            settings = self._engine.log_settings.as_dict()
        answer = pb.LogSettingsResponse()
        for key, value in settings.items():
            setattr(answer.settings[key], _LOG_FIELDS[type(value)], value)
        return answer


_LOG_TYPES = {
    **dict.fromkeys(("log_info", "log_warning", "log_error"), ("bool_param", "boolean")),
    "log_verbose_level": ("uint32_param", "int32"),
    "log_format": ("string_param", "string"),
}
"""By setting: its type, and what Triton calls that."""
_LOG_FIELDS: dict[type, str] = {bool: "bool_param", int: "uint32_param", str: "string_param"}


def _load_parameter(key: str, value: Any, kind: str) -> Any:
    if value.WhichOneof("parameter_choice") != kind:
        raise _wrong_type(key, kind)
    return getattr(value, kind)


def _wrong_type(key: str, kind: str) -> ServeError:
    return invalid_arg(f"invalid value type for load parameter {shown(key)}, expected {kind}.")


def _trace_value(key: str, values: list[str]) -> list[str] | str | None:
    """A trace setting as JSON has it: a list of levels, one string, or None to clear it."""
    if not values:
        return None
    if key == "trace_level":
        return values
    if len(values) > 1:
        raise invalid_arg(f"expect only 1 value for {shown(key)}, got {len(values)}")
    return values[0]


def _log_value(key: str, value: Any) -> Any:
    """A log setting as JSON has it. The file cannot be changed, whatever its type."""
    kind = value.WhichOneof("parameter_choice")
    wanted, word = _LOG_TYPES.get(key, (kind, ""))
    if kind is None or kind != wanted:
        raise invalid_arg(f"expect {word or 'a value'} for {shown(key)}")
    said = getattr(value, kind)
    if key == "log_format" and said not in FORMATS:
        raise invalid_arg(f"invalid argument for log_format, got: {shown(said)[1:-1]}; it is {' or '.join(FORMATS)}")
    return said
