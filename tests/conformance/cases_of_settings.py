"""Trace and log settings, and shared memory, over both doors. Every case leaves things as it found them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from cases_of_bodies import KINDS
from judged_case import Case, case
from judged_grpc import call
from judged_http import get, post
from tritonclient.grpc import service_pb2 as pb

TRACES = ("/v2/trace/setting", "/v2/models/rows/trace/setting", "/v2/models/nobody/trace/setting")
TRACE_VALUES: dict[str, Any] = {
    "trace_level": (["TIMESTAMPS"], ["OFF"], ["TIMESTAMPS", "TENSORS"], ["OFF", "TENSORS"], ["X"], [], "OFF", None, 5),
    "trace_rate": ("5", "0", "-1", "x", "", 5, None, ["5"], ["5", "6"], [], True),
    "trace_count": ("5", "0", "-1", "-2", "x", 5, None, [], True),
    "log_frequency": ("5", "0", "-1", "x", 5, None, []),
    "trace_file": ("/tmp/x", "", None, [], 5),
    "trace_mode": ("triton", "opentelemetry", None, 5),
    "nothing": ("x", None, 5, []),
}
LOG_VALUES: dict[str, Any] = {
    "log_file": ("", "x"),
    "log_info": (True, False),
    "log_warning": (True, False),
    "log_error": (True, False),
    "log_verbose_level": (0, 1),
    "log_format": ("default", "ISO8601", "json"),
    "nothing": (1,),
}
CLEAR = {"trace_level": None, "trace_rate": None, "trace_count": None, "log_frequency": None}
LOGS = {"log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0, "log_format": "default"}


def traces() -> Iterator[Case]:
    for path in TRACES:
        where = "global" if path == TRACES[0] else path.split("/")[3]
        yield case(f"http trace of {where}", get(path))
        for key, values in TRACE_VALUES.items():
            for value in values:
                steps = (post(path, {key: value}), get(path), post(path, CLEAR))
                yield case(f"http trace of {where}, {key} is {value!r}", *steps)
        yield case(
            f"http trace of {where}, body", post(path, b""), post(path, b"{}"), post(path, b"["), post(path, b"[]")
        )
    steps = (post(TRACES[0], {"trace_rate": "7"}), get(TRACES[1]), post(TRACES[1], {"trace_rate": "9"}))
    yield case("http trace of a model follows", *steps, post(TRACES[0], CLEAR), get(TRACES[1]), post(TRACES[1], CLEAR))
    for model in ("", "rows", "nobody"):
        yield case(f"grpc trace of {model!r}", call("TraceSetting", pb.TraceSettingRequest(model_name=model)))
        for key, values in TRACE_VALUES.items():
            for value in values:
                if isinstance(value, bool | int):
                    continue
                steps = [_trace(model, {key: value}), _trace(model, {}), _trace(model, CLEAR)]
                yield case(f"grpc trace of {model!r}, {key} is {value!r}", *steps)


def _trace(model: str, values: dict[str, Any]) -> Any:
    request = pb.TraceSettingRequest(model_name=model)
    for key, value in values.items():
        setting = request.settings[key]
        setting.value.extend([] if value is None else [value] if isinstance(value, str) else value)
    return call("TraceSetting", request)


def logs() -> Iterator[Case]:
    path = "/v2/logging"
    yield case("http logging", get(path))
    for key, values in LOG_VALUES.items():
        for value in values:
            yield case(f"http logging, {key} is {value!r}", post(path, {key: value}), get(path), post(path, LOGS))
        for name, value in KINDS.items():
            yield case(f"http logging, {key} of {name}", post(path, {key: value}), get(path), post(path, LOGS))
    yield case("http logging, body", post(path, b""), post(path, b"{}"), post(path, b"["), post(path, b"[]"))
    yield case("http logging, two", post(path, {"log_info": False, "log_error": False}), get(path), post(path, LOGS))
    yield case("http logging, good and bad", post(path, {"log_info": False, "x": 1}), get(path), post(path, LOGS))
    for key, values in LOG_VALUES.items():
        for value in {repr(value): value for value in (*values, True, 7, "x")}.values():
            yield case(f"grpc logging, {key} is {value!r}", _log({key: value}), _log({}), _log(LOGS))


def _log(values: dict[str, Any]) -> Any:
    request = pb.LogSettingsRequest()
    for key, value in values.items():
        member = {bool: "bool_param", int: "uint32_param", str: "string_param"}[type(value)]
        setattr(request.settings[key], member, value)
    return call("LogSettings", request)


def memory() -> Iterator[Case]:
    """Registrations that fail, and regions that are not there; tensors in memory have tests of their own."""
    for kind in ("system", "cuda"):
        base = f"/v2/{kind}sharedmemory"
        for name, step in {
            "status": get(f"{base}/status"),
            "status of x": get(f"{base}/region/x/status"),
            "unregister": post(f"{base}/unregister"),
            "unregister x": post(f"{base}/region/x/unregister"),
        }.items():
            yield case(f"http {kind} memory, {name}", step)
        for name, body in {
            "empty": b"",
            "no JSON": b"x",
            "nothing": {},
            "no size": {"key": "/judged_nothing"},
            "no key": {"byte_size": 4},
            "no memory": {"key": "/judged_nothing", "byte_size": 4},
            "with offset": {"key": "/judged_nothing", "byte_size": 4, "offset": 4},
            "text for size": {"key": "/judged_nothing", "byte_size": "4"},
            "negative size": {"key": "/judged_nothing", "byte_size": -4},
            "number for key": {"key": 5, "byte_size": 4},
            "a handle": {"raw_handle": {"b64": base64.b64encode(b"x" * 64).decode()}, "device_id": 0, "byte_size": 4},
            "a handle that is none": {"raw_handle": {"b64": "!"}, "device_id": 0, "byte_size": 4},
        }.items():
            yield case(f"http {kind} memory, register {name}", post(f"{base}/region/x/register", body))
    given = {"name": "X", "shape": [1], "datatype": "INT32"}
    for name, parameters in {
        "region": {"shared_memory_region": "x", "shared_memory_byte_size": 4},
        "no size": {"shared_memory_region": "x"},
        "a number": {"shared_memory_region": 5, "shared_memory_byte_size": 4},
        "and data": {"shared_memory_region": "x", "shared_memory_byte_size": 4, "binary_data_size": 4},
    }.items():
        body = {"inputs": [{**given, "parameters": parameters}]}
        yield case(f"http memory for an input, {name}", post("/v2/models/details/infer", body))
        body = {"inputs": [{**given, "data": [1]}], "outputs": [{"name": "Y", "parameters": parameters}]}
        yield case(f"http memory for an output, {name}", post("/v2/models/details/infer", body))
    for kind in ("System", "Cuda"):
        for name in ("", "x"):
            status = getattr(pb, f"{kind}SharedMemoryStatusRequest")(name=name)
            yield case(f"grpc {kind} memory, status {name!r}", call(f"{kind}SharedMemoryStatus", status))
            gone = getattr(pb, f"{kind}SharedMemoryUnregisterRequest")(name=name)
            yield case(f"grpc {kind} memory, unregister {name!r}", call(f"{kind}SharedMemoryUnregister", gone))
    for name, key, size in (
        ("x", "/judged_nothing", 4),
        ("", "/judged_nothing", 4),
        ("x", "", 4),
        ("x", "/judged_nothing", 0),
    ):
        request = pb.SystemSharedMemoryRegisterRequest(name=name, key=key, byte_size=size)
        title = f"grpc System memory, register {name!r} {key!r} {size}"
        yield case(title, call("SystemSharedMemoryRegister", request))
    request = pb.CudaSharedMemoryRegisterRequest(name="x", raw_handle=b"x" * 64, byte_size=4)
    yield case("grpc Cuda memory, register", call("CudaSharedMemoryRegister", request))


def cases() -> Iterator[Case]:
    for family in (traces, logs, memory):
        yield from family()
