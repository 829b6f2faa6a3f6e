"""Registering regions, and the bounds of what is read from them and written to them."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bident.engine import shared_memory
from bident.engine.shared_memory import SharedMemory, SystemRegion
from bident.errors import Code, ServeError
from tests.shared_objects import SharedObject

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no POSIX shared memory")
linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere shared memory cannot change its size")


@pytest.fixture
def memory() -> SharedMemory:
    return SharedMemory(allowed=True)


@pytest.fixture
def made() -> Iterator[SharedObject]:
    with SharedObject(64) as shared:
        shared.put(bytes(range(64)))
        yield shared


def refusal(code: Code, ask: object, *arguments: object) -> str:
    with pytest.raises(ServeError) as refused:
        ask(*arguments)  # type: ignore[operator]
    assert refused.value.code is code
    return refused.value.message


def open_descriptors() -> int:
    gc.collect()  # what other tests have left is not counted before and closed after
    return len(list(Path("/proc/self/fd").iterdir()))


def test_what_is_registered_is_listed_by_name(memory: SharedMemory, made: SharedObject) -> None:
    memory.register_system("z", made.key, 0, 64)
    memory.register_system("a", made.key.lstrip("/"), 8, 4)
    first, last = SystemRegion("a", made.key.lstrip("/"), 8, 4), SystemRegion("z", made.key, 0, 64)
    assert memory.system_regions("") == [first, last]
    assert memory.system_regions("z") == [last]
    assert "Unable to find system shared memory region: 'y'" in refusal(Code.NOT_FOUND, memory.system_regions, "y")


def test_a_region_is_read_and_written_where_it_lies(memory: SharedMemory, made: SharedObject) -> None:
    memory.register_system("r", made.key, 10, 20)
    assert bytes(memory.view("r", 0, 20).read()) == bytes(range(10, 30))
    assert bytes(memory.view("r", 19, 1).read()) == bytes([29])
    memory.view("r", 4, 8).write(b"abc")
    assert made.get(20, 10) == bytes(range(10, 14)) + b"abc" + bytes(range(17, 30))


def test_what_was_read_does_not_follow_the_client(memory: SharedMemory, made: SharedObject) -> None:
    memory.register_system("r", made.key, 0, 64)
    data = memory.view("r", 0, 4).read()
    made.put(b"\xff" * 64)
    assert bytes(data) == bytes(range(4))


@pytest.mark.parametrize(
    ("offset", "size", "fragment"),
    [
        (60, 8, "Invalid offset + byte size for shared memory region: 'r'"),
        (0, 65, "Invalid offset + byte size"),
        (0, 0, "Invalid offset + byte size"),
        (0, None, "Invalid offset + byte size"),
        (0, -1, "Invalid offset + byte size"),
        (8, 2**64 - 4, "Invalid offset + byte size"),
        (64, 1, "Invalid offset for shared memory region: 'r'"),
        (2**64 - 4, 8, "Invalid offset for"),
        (-1, 4, "Invalid offset for"),
    ],
)
def test_nothing_beyond_a_region_is_touched(
    memory: SharedMemory, made: SharedObject, offset: int, size: int | None, fragment: str
) -> None:
    memory.register_system("r", made.key, 0, 64)
    assert fragment in refusal(Code.INVALID_ARG, memory.view, "r", offset, size)


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 65), (60, 8), (0, 0), (0, -1), (-8, 8), (2**64 - 4, 8), (8, 2**64 - 4), (64, 1)]
)
def test_a_region_must_lie_within_its_object(memory: SharedMemory, made: SharedObject, offset: int, size: int) -> None:
    message = refusal(Code.INVALID_ARG, memory.register_system, "r", made.key, offset, size)
    assert "failed to register shared memory region 'r': invalid args" in message
    assert memory.system_regions("") == []


@pytest.mark.parametrize("key", ["/not-there", "../etc/passwd", "/a/b", "", "/", ".", "..", "x" * 5000])
def test_keys_that_name_no_shared_memory(memory: SharedMemory, key: str) -> None:
    message = refusal(Code.INVALID_ARG, memory.register_system, "r", key, 0, 8)
    assert "failed to register shared memory region 'r': Unable to open shared memory region: '" in message
    assert len(message) < 500


def test_a_key_with_a_nul_does_not_name_what_stands_before_it(memory: SharedMemory, made: SharedObject) -> None:
    refusal(Code.INVALID_ARG, memory.register_system, "r", f"{made.key}\0x", 0, 8)


@linux
def test_a_pipe_is_no_shared_memory(memory: SharedMemory) -> None:
    path = Path(f"/dev/shm/bident-test-{os.getpid()}")
    os.mkfifo(path)
    try:
        assert "no shared memory object" in refusal(Code.INVALID_ARG, memory.register_system, "r", path.name, 0, 8)
    finally:
        path.unlink()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("triton_python_backend_shm_region_1", "/k"),
        ("r", "/triton_python_backend_shm_region_1"),
        ("r", "triton_python_backend_shm_region_1"),
        ("r", "//triton_python_backend_shm_region_1"),
    ],
)
def test_what_belongs_to_python_models_is_reserved(memory: SharedMemory, name: str, key: str) -> None:
    assert "reserved" in refusal(Code.INVALID_ARG, memory.register_system, name, key, 0, 8)


def test_a_name_is_taken_once(memory: SharedMemory, made: SharedObject) -> None:
    memory.register_system("r", made.key, 0, 8)
    message = refusal(Code.ALREADY_EXISTS, memory.register_system, "r", made.key, 0, 8)
    assert "shared memory region 'r' already in manager" in message
    memory.unregister_system("r")
    memory.register_system("r", made.key, 8, 8)


def test_names_are_needed_and_not_endless(memory: SharedMemory, made: SharedObject) -> None:
    assert "region name" in refusal(Code.INVALID_ARG, memory.register_system, "", made.key, 0, 8)
    refusal(Code.INVALID_ARG, memory.register_system, "r" * 5000, made.key, 0, 8)


def test_regions_are_not_endless(memory: SharedMemory, made: SharedObject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "_MOST_REGIONS", 2)
    for name in "ab":
        memory.register_system(name, made.key, 0, 8)
    assert "unregister some first" in refusal(Code.UNAVAILABLE, memory.register_system, "c", made.key, 0, 8)


def test_to_unregister_what_is_not_there_is_a_success(memory: SharedMemory) -> None:
    memory.unregister_system("never")
    memory.unregister_system("")


@linux
def test_memory_stays_open_for_requests_that_have_it(memory: SharedMemory, made: SharedObject) -> None:
    before = open_descriptors()
    memory.register_system("a", made.key, 0, 64)
    memory.register_system("b", made.key, 0, 64)
    window = memory.view("a", 0, 4)
    memory.unregister_system("")
    assert "Unable to find shared memory region: 'a'" in refusal(Code.NOT_FOUND, memory.view, "a", 0, 4)
    assert open_descriptors() == before + 1
    window.write(b"late")
    assert made.get(4) == b"late"
    del window
    assert open_descriptors() == before


@linux
def test_a_refused_region_leaves_nothing_open(memory: SharedMemory, made: SharedObject) -> None:
    before = open_descriptors()
    refusal(Code.INVALID_ARG, memory.register_system, "r", made.key, 0, 65)
    assert open_descriptors() == before


@linux
def test_memory_that_its_owner_takes_away_is_an_error_not_the_end(memory: SharedMemory) -> None:
    with SharedObject(1 << 20) as shared:
        memory.register_system("r", shared.key, 0, 1 << 20)
        shared.shrink(4096)
        assert len(memory.view("r", 0, 4096).read()) == 4096
        message = refusal(Code.INVALID_ARG, memory.view("r", 0, 8192).read)
        assert "Invalid offset + byte size for shared memory region: 'r'" in message
        assert "become smaller" in message
        memory.view("r", 1000, 9000).write(b"x" * 9000)  # makes it larger again


def test_nothing_is_registered_where_it_is_not_allowed(made: SharedObject) -> None:
    memory = SharedMemory(allowed=False)
    for ask, arguments in (
        (memory.register_system, ("r", made.key, 0, 8)),
        (memory.unregister_system, ("r",)),
        (memory.register_cuda, ("r", b"x", 0, 8)),
        (memory.unregister_cuda, ("r",)),
    ):
        message = refusal(Code.UNSUPPORTED, ask, *arguments)
        assert message.startswith("Client shared memory is disabled.")
        assert "--allow-client-shm=true" in message
    assert memory.system_regions("") == []


def test_there_are_no_gpus(memory: SharedMemory) -> None:
    assert memory.cuda_regions("") == []
    assert "Unable to find cuda shared memory region: 'r'" in refusal(Code.NOT_FOUND, memory.cuda_regions, "r")
    message = refusal(Code.INVALID_ARG, memory.register_cuda, "r", b"x" * 64, 0, 8)
    assert message == "failed to register CUDA shared memory region: 'r', GPUs not supported"
    memory.unregister_cuda("r")


def test_a_platform_without_it_says_so(memory: SharedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_posixshmem", None)
    assert "no POSIX shared memory" in refusal(Code.UNSUPPORTED, memory.register_system, "r", "/k", 0, 8)


def test_a_mapping_serves_where_descriptors_cannot_be_read(made: SharedObject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    memory = SharedMemory(allowed=True)
    memory.register_system("r", made.key, 8, 16)
    window = memory.view("r", 4, 8)
    assert bytes(window.read()) == bytes(range(12, 20))
    window.write(b"mapped")
    assert made.get(6, 12) == b"mapped"
