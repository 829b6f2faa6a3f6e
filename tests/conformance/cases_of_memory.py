"""System shared memory: inputs read from it, outputs written to it, and everything a region may not be."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from judged_case import Case, case
from judged_grpc import call
from judged_http import get, post
from judged_memory import KEY, SIZE, OverMemory, Until
from judged_question import put_parameters, text
from tritonclient.grpc import service_pb2 as pb

BASE = "/v2/systemsharedmemory"
NUMBERS = struct.pack("<8i", *range(10, 18))
PLACES: dict[str, dict[str, Any]] = {
    "whole": {"shared_memory_byte_size": 32},
    "from the middle": {"shared_memory_offset": 64, "shared_memory_byte_size": 32},
    "too small": {"shared_memory_byte_size": 16},
    "too large": {"shared_memory_byte_size": 64},
    "of no size": {"shared_memory_byte_size": 0},
    "without a size": {},
    "to the end": {"shared_memory_offset": SIZE - 32, "shared_memory_byte_size": 32},
    "over the end": {"shared_memory_offset": SIZE - 16, "shared_memory_byte_size": 32},
    "behind the end": {"shared_memory_offset": SIZE, "shared_memory_byte_size": 32},
    "far away": {"shared_memory_offset": 2**63, "shared_memory_byte_size": 2**63},
}


def _register(name: str = "r", **more: Any) -> Any:
    return post(f"{BASE}/region/{name}/register", {"key": KEY, "byte_size": SIZE, **more})


def registrations() -> Iterator[Case]:
    gone, status = post(f"{BASE}/unregister"), get(f"{BASE}/status")
    one = (status, get(f"{BASE}/region/r/status"), post(f"{BASE}/region/r/unregister"), status, gone)
    yield case("http memory, registered", _register(), *one)
    yield case("http memory, registered twice", _register(), _register(), _register("s"), *one)
    for name, more in {
        "in part": {"byte_size": 64, "offset": 128},
        "too large": {"byte_size": SIZE + 1},
        "beyond the end": {"byte_size": 64, "offset": SIZE},
        "of no size": {"byte_size": 0},
        "with a key without slash": {"key": KEY[1:]},
        "of Triton's own": {"key": "/triton_python_backend_shm_region_1"},
    }.items():
        yield case(f"http memory, registered {name}", _register(**more), *one)
    request = pb.SystemSharedMemoryRegisterRequest(name="r", key=KEY, byte_size=SIZE)
    seen = call("SystemSharedMemoryStatus")
    away = call("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest())
    register = call("SystemSharedMemoryRegister", request)
    yield case("grpc memory, registered", register, seen, register, away, seen)


def tensors() -> Iterator[Case]:
    gone = Until(post(f"{BASE}/unregister"))
    for name, place in PLACES.items():
        at = {"shared_memory_region": "r", **place}
        content = bytes(place.get("shared_memory_offset", 0) % SIZE) + NUMBERS
        given = {"name": "X", "shape": [8], "datatype": "INT32"}
        read = post("/v2/models/cached/infer", {"inputs": [{**given, "parameters": at}], "outputs": [{"name": "Y"}]})
        yield case(f"http memory, input {name}", _register(), OverMemory(read, content), gone)
        wanted = [{"name": "Y", "parameters": at}]
        write = post("/v2/models/cached/infer", {"inputs": [{**given, "data": [5] * 8}], "outputs": wanted})
        yield case(f"http memory, output {name}", _register(), OverMemory(write), gone)
        if all(value < 2**63 for value in place.values()):
            yield case(f"grpc memory, input {name}", _register(), OverMemory(_asked(at, None), content), gone)
            yield case(f"grpc memory, output {name}", _register(), OverMemory(_asked(None, at)), gone)
    strings = {"name": "X", "shape": [2], "datatype": "BYTES"}
    place = {"shared_memory_region": "r", "shared_memory_byte_size": 11}
    body = {"inputs": [{**strings, "parameters": place}], "outputs": [{"name": "Y", "parameters": {**place}}]}
    content = text(b"ab", b"c")
    yield case("http memory, strings", _register(), OverMemory(post("/v2/models/texts/infer", body), content), gone)


def _asked(source: dict[str, Any] | None, target: dict[str, Any] | None) -> Any:
    request = pb.ModelInferRequest(model_name="cached")
    given = request.inputs.add(name="X", datatype="INT32", shape=[8])
    if source is None:
        given.contents.int_contents.extend([5] * 8)
    put_parameters(given.parameters, source or {})
    put_parameters(request.outputs.add(name="Y").parameters, target or {})
    return call("ModelInfer", request)


def cases() -> Iterator[Case]:
    yield from registrations()
    yield from tensors()
