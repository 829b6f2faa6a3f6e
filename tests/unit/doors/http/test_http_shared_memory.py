"""Shared memory over HTTP: registering it, and tensors that come from it and go to it."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from http_line import Answer, get, post

from bident.doors import answers, shared_tensors
from bident.doors.http import v2
from tests.shared_objects import SharedObject
from tests.unit.doors.http.conftest import EngineDoor

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no POSIX shared memory")
SYSTEM, CUDA = "/v2/systemsharedmemory", "/v2/cudasharedmemory"


@pytest.fixture
def made(door: EngineDoor) -> Iterator[SharedObject]:
    """256 bytes, registered as region r."""
    with SharedObject(256) as shared:
        door.engine.shared_memory.register_system("r", shared.key, 0, 256)
        yield shared
        door.engine.shared_memory.unregister_system("")


def call(door: EngineDoor, path: str, document: object = None) -> Answer:
    return door.ask(post(path, b"" if document is None else json.dumps(document).encode()))


def region(size: int | None = None, offset: int | None = None, name: object = "r", **more: object) -> dict[str, Any]:
    named = {"shared_memory_region": name, "shared_memory_byte_size": size, "shared_memory_offset": offset}
    return {**{key: value for key, value in named.items() if value is not None}, **more}


def infer(
    door: EngineDoor,
    source: dict[str, Any] | list[Any],
    target: dict[str, Any] | None = None,
    *,
    shape: tuple[int, int] = (1, 4),
    model: str = "fp32",
) -> Answer:
    tensor = {"name": "X", "shape": shape, "datatype": model.upper()}
    tensor["parameters" if isinstance(source, dict) else "data"] = source
    document: dict[str, Any] = {"inputs": [tensor]}
    if target is not None:
        document["outputs"] = [{"name": "Y", "parameters": target}]
    return call(door, f"/v2/models/{model}/infer", document)


def error_of(answer: Answer) -> str:
    message = json.loads(answer.body)["error"]
    assert isinstance(message, str)
    return message


# Registering


def test_a_region_is_registered_listed_and_forgotten(door: EngineDoor) -> None:
    with SharedObject(64) as made:
        answer = call(door, f"{SYSTEM}/region/a%2Fb/register", {"key": made.key, "offset": 8, "byte_size": 16})
        assert (answer.status, answer.body) == (200, b"")
        listed = [{"name": "a/b", "key": made.key, "offset": 8, "byte_size": 16}]
        assert json.loads(door.ask(get(f"{SYSTEM}/status")).body) == listed
        assert json.loads(door.ask(get(f"{SYSTEM}/region/a%2Fb/status")).body) == listed
        assert call(door, f"{SYSTEM}/region/a%2Fb/unregister").status == 200
        assert door.ask(get(f"{SYSTEM}/status")).body == b"[]"
        missing = door.ask(get(f"{SYSTEM}/region/a%2Fb/status"))
        assert (missing.status, error_of(missing)) == (404, "Unable to find system shared memory region: 'a/b'")
        call(door, f"{SYSTEM}/region/c/register", {"key": made.key, "byte_size": 16})
        assert call(door, f"{SYSTEM}/unregister", {}).status == 200
        assert door.ask(get(f"{SYSTEM}/status")).body == b"[]"


@pytest.mark.parametrize(
    ("document", "fragment"),
    [
        ({}, "Shared memory register request has no 'key' field"),
        ({"key": "/k"}, "Shared memory register request has no 'byte_size' field"),
        ({"key": 1, "byte_size": 8}, "attempt to access JSON non-string as string"),
        ({"key": "/k", "byte_size": "8"}, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "/k", "byte_size": -8}, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "/k", "byte_size": True}, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "/k", "byte_size": 8, "offset": None}, "attempt to access JSON non-unsigned-integer"),
        ({"key": "/not-there", "byte_size": 8}, "Unable to open shared memory region: '/not-there'"),
        ([], "failed to parse the request JSON buffer"),
    ],
)
def test_what_cannot_be_registered(door: EngineDoor, document: object, fragment: str) -> None:
    answer = call(door, f"{SYSTEM}/region/x/register", document)
    assert answer.status == 400
    assert fragment in error_of(answer)


@pytest.mark.parametrize("kind", ["system", "cuda"])
def test_a_region_needs_a_name(door: EngineDoor, kind: str) -> None:
    answer = call(door, f"/v2/{kind}sharedmemory/register", {"key": "/k", "byte_size": 8})
    assert answer.status == 400
    assert f"'region name' is necessary to register {kind} shared memory region" in error_of(answer)


def test_a_name_that_is_taken(door: EngineDoor, made: SharedObject) -> None:
    answer = call(door, f"{SYSTEM}/region/r/register", {"key": made.key, "byte_size": 8})
    assert (answer.status, error_of(answer)) == (400, "shared memory region 'r' already in manager")


def test_there_are_no_gpus(door: EngineDoor) -> None:
    good = {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 8}
    answer = call(door, f"{CUDA}/region/g/register", good)
    assert answer.status == 400
    assert error_of(answer) == "failed to register CUDA shared memory region: 'g', GPUs not supported"
    assert door.ask(get(f"{CUDA}/status")).body == b"[]"
    assert door.ask(get(f"{CUDA}/region/g/status")).status == 404
    assert call(door, f"{CUDA}/region/g/unregister").status == 200
    assert call(door, f"{CUDA}/unregister").status == 200
    assert "no 'raw_handle' field" in error_of(call(door, f"{CUDA}/region/g/register", {}))
    for bad in ({"b64": "!"}, {"b64": 1}, {}, "AAAA"):
        assert call(door, f"{CUDA}/region/g/register", {**good, "raw_handle": bad}).status == 400
    for missing in ("device_id", "byte_size"):
        document = {key: value for key, value in good.items() if key != missing}
        assert missing in error_of(call(door, f"{CUDA}/region/g/register", document))


def test_off_unless_allowed(door: EngineDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door.engine.shared_memory, "_allowed", False)
    for path in (f"{SYSTEM}/region/r/register", f"{SYSTEM}/unregister", f"{CUDA}/region/r/register"):
        answer = call(door, path)
        assert answer.status == 501
        assert "Start the server with '--allow-client-shm=true' to enable." in error_of(answer)
    assert door.ask(get(f"{SYSTEM}/status")).body == b"[]"


# Tensors


def test_an_input_and_an_output(door: EngineDoor, made: SharedObject) -> None:
    values = np.arange(4, dtype=np.float32)
    made.put(values.tobytes(), 16)
    answer = infer(door, region(16, 16), region(24, 40))
    assert answer.status == 200
    assert json.loads(answer.body)["outputs"] == [{"name": "Y", "datatype": "FP32", "shape": [1, 4]}]
    assert made.get(24, 40) == values.tobytes() + bytes(8)
    assert json.loads(infer(door, region(16, 16)).body)["outputs"][0]["data"] == values.tolist()


def test_strings(door: EngineDoor, made: SharedObject) -> None:
    packed = b"".join(struct.pack("<I", len(text)) + text for text in (b"ab", b"", b"xyz"))
    made.put(packed)
    answer = infer(door, region(len(packed)), region(100, 100), shape=(1, 3), model="bytes")
    assert answer.status == 200
    assert made.get(len(packed), 100) == packed
    assert "unexpected number of string elements" in error_of(
        infer(door, region(len(packed)), shape=(1, 2), model="bytes")
    )


@pytest.mark.parametrize(
    ("source", "status", "fragment"),
    [
        (region(16, name="other"), 404, "Unable to find shared memory region: 'other'"),
        (region(16, 256), 400, "Invalid offset for shared memory region: 'r'"),
        (region(16, 2**64 - 4), 400, "Invalid offset for shared memory region: 'r'"),
        (region(16, 248), 400, "Invalid offset + byte size for shared memory region: 'r'"),
        (region(2**64 - 4, 8), 400, "Invalid offset + byte size for shared memory region: 'r'"),
        (region(), 400, "Invalid offset + byte size for shared memory region: 'r'"),
        (region(0), 400, "Invalid offset + byte size for shared memory region: 'r'"),
        (region(12), 400, "input byte size mismatch for input 'X'"),
        (region(20), 400, "Expected 16, got 20"),
        (
            region(16, name=5),
            400,
            "Unable to parse 'shared_memory_region': attempt to access JSON non-string as string",
        ),
        (region(-1), 400, "Unable to parse 'shared_memory_byte_size'"),
        (region(16, -1), 400, "Unable to parse 'shared_memory_offset'"),
        (region(16, binary_data_size=16), 400, "Input must set only one of the following fields"),
        ({"shared_memory_byte_size": 16}, 400, "Input must set only one of the following fields"),
    ],
)
def test_inputs_that_are_refused(
    door: EngineDoor, made: SharedObject, source: dict[str, Any], status: int, fragment: str
) -> None:
    answer = infer(door, source)
    assert answer.status == status
    assert fragment in error_of(answer)


@pytest.mark.parametrize(
    ("target", "status", "fragment"),
    [
        (region(16, name="other"), 404, "Unable to find shared memory region: 'other'"),
        (region(16, 256), 400, "Invalid offset for shared memory region: 'r'"),
        (region(2**64 - 8, 16), 400, "Invalid offset + byte size for shared memory region: 'r'"),
        (region(), 400, "Invalid offset + byte size for shared memory region: 'r'"),
        (region(16, classification=1), 400, "Output can't set both 'shared_memory_region' and 'classification'"),
        (region(16, binary_data=True), 400, "Output can't set both 'shared_memory_region' and 'binary_data'"),
        (
            region(12),
            500,
            "shared memory size specified with the request for output 'Y' (12 bytes) should be at least 16 bytes to "
            "hold the results",
        ),
    ],
)
def test_outputs_that_are_refused(
    door: EngineDoor, made: SharedObject, target: dict[str, Any], status: int, fragment: str
) -> None:
    answer = infer(door, [1, 2, 3, 4], target)
    assert answer.status == status
    assert fragment in error_of(answer)
    assert made.get(256) == bytes(256)


def test_a_size_without_a_region_says_nothing(door: EngineDoor) -> None:
    answer = infer(door, [1, 2, 3, 4], {"shared_memory_byte_size": 16, "binary_data": False})
    assert json.loads(answer.body)["outputs"][0]["data"] == [1, 2, 3, 4]


def test_an_unknown_input_is_refused_unread(door: EngineDoor, made: SharedObject) -> None:
    tensor = {"name": "Z", "shape": [1, 4], "datatype": "FP32", "parameters": region(256)}
    answer = call(door, "/v2/models/fp32/infer", {"inputs": [tensor]})
    assert answer.status == 400
    assert "unexpected inference input 'Z'" in error_of(answer)


def test_large_tensors_are_copied_aside(door: EngineDoor, made: SharedObject, monkeypatch: pytest.MonkeyPatch) -> None:
    aside: list[str] = []

    def noted(name: str, module: Any, what: str) -> None:
        original = getattr(module, what)

        async def noting(work: Any) -> Any:
            aside.append(name)
            return await original(work)

        monkeypatch.setattr(module, what, noting)

    for module in (v2, answers):
        monkeypatch.setattr(module, "COPY_HERE", 8)
    monkeypatch.setattr(answers, "WRITE_HERE", 1)
    noted("v2", v2, "aside")
    made.put(np.arange(4, dtype=np.float32).tobytes())
    assert infer(door, region(16), region(16, 16)).status == 200
    assert aside == ["v2", "v2"]
    assert made.get(16, 16) == made.get(16)
    refused = infer(door, region(12), region(16, 16))
    assert (refused.status, aside) == (400, ["v2", "v2", "v2"])


def test_a_request_has_a_limit(door: EngineDoor, made: SharedObject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_tensors, "_MOST_BYTES", 15)
    assert "15 bytes in shared memory" in error_of(infer(door, region(16)))
