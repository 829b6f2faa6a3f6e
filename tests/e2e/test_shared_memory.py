"""NVIDIA's own shared memory utilities and clients, unmodified, against a server that lets them."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
import tritonclient.utils.shared_memory as shm
from serving import Gate, Launch, TensorServer, eventually
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from tests.conftest import write_identity
from tests.shared_objects import SharedObject

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no POSIX shared memory")

ALLOWED = "--allow-client-shm=true"
GATED = """
backend: "gated"
input [ {{ name: "X", data_type: TYPE_FP32, dims: [ -1 ] }} ]
output [ {{ name: "Y", data_type: TYPE_FP32, dims: [ -1 ] }} ]
{}
"""


class Memory:
    """What NVIDIA's utilities make of a region: known to the server as ``name``, gone afterwards."""

    def __init__(self, client: Any, size: int) -> None:
        self.client = client
        self.name = f"region-{secrets.token_hex(4)}"
        self.key = f"/bident-test-{secrets.token_hex(8)}"
        self.size = size

    def __enter__(self) -> Memory:
        self.handle = shm.create_shared_memory_region(self.name, self.key, self.size)
        self.client.register_system_shared_memory(self.name, self.key, self.size)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.unregister_system_shared_memory(self.name)
        shm.destroy_shared_memory_region(self.handle)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Iterator[TensorServer]:
    base = tmp_path_factory.mktemp("shared_memory")
    for word in ("FP32", "FP16", "INT64", "STRING"):
        write_identity(base / "models", word.lower(), datatype=word, dims="-1", batch=8)
    with TensorServer(base / "models", base / "log", ALLOWED, plugins=plugins) as running:
        yield running
        assert "Traceback" not in running.log_text


@pytest.fixture(params=["http", "grpc"])
def triton(request: pytest.FixtureRequest) -> Any:
    return over_http if request.param == "http" else over_grpc


@pytest.fixture
def client(server: TensorServer, triton: Any) -> Iterator[Any]:
    port = server.port if triton is over_http else server.grpc_port
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as made:
        yield made
        made.unregister_system_shared_memory()


def names_of(status: Any) -> list[str]:
    """The regions in a client's answer: a list over HTTP, a message over gRPC."""
    return [region["name"] for region in status] if isinstance(status, list) else sorted(status.regions)


def given(triton: Any, memory: Memory, shape: list[int], datatype: str, size: int, offset: int = 0) -> Any:
    tensor = triton.InferInput("X", shape, datatype)
    tensor.set_shared_memory(memory.name, size, offset)
    return tensor


def wanted(triton: Any, memory: Memory, size: int, offset: int = 0) -> Any:
    output = triton.InferRequestedOutput("Y")
    output.set_shared_memory(memory.name, size, offset)
    return output


@pytest.mark.parametrize(
    ("model", "datatype", "dtype"), [("fp32", "FP32", "f4"), ("int64", "INT64", "i8"), ("fp16", "FP16", "f2")]
)
def test_tensors_go_and_come_in_memory(client: Any, triton: Any, model: str, datatype: str, dtype: str) -> None:
    array = np.arange(12).reshape(3, 4).astype(dtype)
    with Memory(client, 2 * array.nbytes) as memory:
        shm.set_shared_memory_region(memory.handle, [array])
        inputs = [given(triton, memory, [3, 4], datatype, array.nbytes)]
        outputs = [wanted(triton, memory, array.nbytes, array.nbytes)]
        result = client.infer(model, inputs, outputs=outputs)
        described = result.get_output("Y")
        assert list(described["shape"] if isinstance(described, dict) else described.shape) == [3, 4]
        written = shm.get_contents_as_numpy(memory.handle, array.dtype, [3, 4], offset=array.nbytes)
        assert (written == array).all()
        plain = client.infer(model, inputs)
        assert (plain.as_numpy("Y") == array).all()


def test_strings(client: Any, triton: Any) -> None:
    array = np.array([["one", "", "zwölf"]], dtype=object)
    serialized = serialize_byte_tensor(array)
    size = len(serialized.item())
    with Memory(client, 2 * size) as memory:
        shm.set_shared_memory_region(memory.handle, [serialized])
        client.infer(
            "string",
            [given(triton, memory, [1, 3], "BYTES", size)],
            outputs=[wanted(triton, memory, size, size)],
        )
        written = shm.get_contents_as_numpy(memory.handle, np.dtype(object), [1, 3], offset=size)
        assert [text.decode() for text in written.ravel()] == array.ravel().tolist()


def test_large_tensors(client: Any, triton: Any) -> None:
    array = np.random.default_rng(0).random((1, 2_000_000), np.float32)
    with Memory(client, 2 * array.nbytes) as memory:
        shm.set_shared_memory_region(memory.handle, [array])
        inputs = [given(triton, memory, [1, array.size], "FP32", array.nbytes)]
        client.infer("fp32", inputs, outputs=[wanted(triton, memory, array.nbytes, array.nbytes)])
        written = shm.get_contents_as_numpy(memory.handle, np.dtype("f4"), [1, array.size], offset=array.nbytes)
        assert (written == array).all()


def test_regions_are_listed_and_forgotten(client: Any) -> None:
    with Memory(client, 64) as first, Memory(client, 64) as second:
        assert names_of(client.get_system_shared_memory_status()) == sorted([first.name, second.name])
        assert names_of(client.get_system_shared_memory_status(first.name)) == [first.name]
        client.unregister_system_shared_memory(first.name)
        with pytest.raises(InferenceServerException, match="Unable to find system shared memory region"):
            client.get_system_shared_memory_status(first.name)
        client.unregister_system_shared_memory()
        assert names_of(client.get_system_shared_memory_status()) == []
    assert names_of(client.get_cuda_shared_memory_status()) == []


def test_what_is_refused(client: Any, triton: Any) -> None:
    with Memory(client, 64) as memory:
        with pytest.raises(InferenceServerException, match="already in manager"):
            client.register_system_shared_memory(memory.name, memory.key, 64)
        with pytest.raises(InferenceServerException, match="Unable to open shared memory region"):
            client.register_system_shared_memory("other", "/bident-test-nothing", 64)
        with pytest.raises(InferenceServerException, match="invalid args"):
            client.register_system_shared_memory("other", memory.key, 65)
        with pytest.raises(InferenceServerException, match=r"Invalid offset \+ byte size"):
            client.infer("fp32", [given(triton, memory, [1, 4], "FP32", 16, 60)])
        with pytest.raises(InferenceServerException, match="Invalid offset for shared memory region"):
            client.infer("fp32", [given(triton, memory, [1, 4], "FP32", 16, 64)])
        with pytest.raises(InferenceServerException, match="should be at least 16 bytes to hold the results"):
            client.infer("fp32", [given(triton, memory, [1, 4], "FP32", 16)], outputs=[wanted(triton, memory, 12, 16)])
    with pytest.raises(InferenceServerException, match="Unable to find shared memory region"):
        client.infer("fp32", [given(triton, memory, [1, 4], "FP32", 16)])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere shared memory cannot change its size")
def test_a_client_that_takes_its_memory_away_takes_nobody_along(client: Any, triton: Any) -> None:
    tensor = triton.InferInput("X", [1, 4096], "FP32")
    with SharedObject(16384) as made:
        client.register_system_shared_memory("shrunk", made.key, 16384)
        tensor.set_shared_memory("shrunk", 16384)
        assert client.infer("fp32", [tensor]).as_numpy("Y").shape == (1, 4096)
        made.shrink(0)
        with pytest.raises(InferenceServerException, match="become smaller"):
            client.infer("fp32", [tensor])
    assert client.is_server_live()


def test_a_region_may_be_unregistered_under_a_running_request(
    launch: Launch, tmp_path: Path, gate: Gate, triton: Any
) -> None:
    folder = tmp_path / "repository" / "slow"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(GATED.format(gate.parameters()))
    server = launch(tmp_path / "repository", ALLOWED)
    port = server.port if triton is over_http else server.grpc_port
    answers: list[Any] = []
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as client, SharedObject(32) as made:
        made.put(np.arange(4, dtype=np.float32).tobytes())
        client.register_system_shared_memory("r", made.key, 32)
        tensor, output = triton.InferInput("X", [4], "FP32"), triton.InferRequestedOutput("Y")
        tensor.set_shared_memory("r", 16)
        output.set_shared_memory("r", 16, 16)
        if triton is over_http:
            waiting = client.async_infer("slow", [tensor], outputs=[output])
        else:
            client.async_infer(
                "slow", [tensor], lambda result, error: answers.append((result, error)), outputs=[output]
            )
        assert gate.wait_for_batches(1) == [[0, 1, 2, 3]]
        with triton.InferenceServerClient(f"127.0.0.1:{port}") as other:
            other.unregister_system_shared_memory()
            assert names_of(other.get_system_shared_memory_status()) == []
        gate.open()
        if triton is over_http:
            waiting.get_result()
        else:
            assert eventually(lambda: answers, "the answer")[0][1] is None
        assert made.get(16, 16) == made.get(16)


def test_off_unless_allowed(launch: Launch, tmp_path: Path, triton: Any) -> None:
    write_identity(tmp_path / "repository", "m")
    server = launch(tmp_path / "repository")
    port = server.port if triton is over_http else server.grpc_port
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as client, SharedObject(64) as made:
        for refused in (
            lambda: client.register_system_shared_memory("r", made.key, 64),
            lambda: client.unregister_system_shared_memory("r"),
        ):
            with pytest.raises(InferenceServerException, match="--allow-client-shm=true"):
                refused()
        assert names_of(client.get_system_shared_memory_status()) == []
