"""A real Triton behind bident's command: model control, signals, and what it says when it cannot start."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from serving import eventually

from benchmarks.peers.triton import STUB, python_paths, server_home
from bident.client import Client
from bident.errors import ServeError
from real_triton import ServedByTriton, make_triton, stubs_of
from tests.conftest import write_identity

Start = Callable[..., ServedByTriton]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a Triton on a repository, ready unless told otherwise; stopped after the test."""
    make_triton()
    started: list[ServedByTriton] = []

    def begin(repository: Path, *flags: str, wait: bool = True, **options: Any) -> ServedByTriton:
        server = ServedByTriton(repository, tmp_path / f"triton{len(started)}.log", *flags, **options)
        started.append(server)
        server.start()
        if wait:
            server.wait_ready()
        return server

    yield begin
    for server in started:
        server.stop(grace_seconds=10.0)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A repository with one model that Triton has no backend for."""
    write_identity(tmp_path / "models", "echo")
    return tmp_path / "models"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A copy of the installation, by links, that a test may spoil."""
    make_triton()
    original = server_home(python_paths()[0])
    copy = tmp_path / "tritonserver"
    (copy / "bin").mkdir(parents=True)
    (copy / "bin" / "tritonserver").symlink_to(original / "bin" / "tritonserver")
    (copy / "backends" / "python").mkdir(parents=True)
    for entry in (original / "backends" / "python").iterdir():
        if entry.name != STUB:
            (copy / "backends" / "python" / entry.name).symlink_to(entry)
    return copy


def echo(client: Client, numbers: list[float], model: str = "echo") -> list[float]:
    tensor = {"name": "X", "shape": [1, len(numbers)], "datatype": "FP32", "data": numbers}
    answer: list[float] = client.call("POST", f"/v2/models/{model}/infer", {"inputs": [tensor]})["outputs"][0]["data"]
    return answer


def reloaded(client: Client, model: str, said: str) -> bool:
    """Load, and whether that was what the folder holds now: the server follows it with a small delay."""
    try:
        client.load(model)
    except ServeError as error:
        return said in error.message
    return said in str(client.config(model))


def test_models_are_loaded_unloaded_and_follow_their_folders(start: Start, models: Path) -> None:
    server = start(models, "--model-control-mode=explicit", "--load-model=echo")
    client = Client(server.url(""), timeout=30)
    assert echo(client, [1.5, 2.0]) == [1.5, 2.0]

    config = models / "echo" / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 5"))
    eventually(lambda: reloaded(client, "echo", "'max_batch_size': 5"), "the changed config is loaded")

    write_identity(models, "fresh")
    eventually(lambda: reloaded(client, "fresh", "'name': 'fresh'"), "the model that was added is loaded")
    assert echo(client, [3.0], "fresh") == [3.0]

    client.unload("fresh")
    eventually(lambda: client.exchange("GET", "/v2/models/fresh/ready").status != 200, "it is unloaded")
    shutil.rmtree(models / "fresh")
    eventually(lambda: "fresh" not in {row["name"] for row in client.index()}, "it is out of the index")

    more = '\noutput [ { name: "Z", data_type: TYPE_FP32, dims: [ -1 ] } ]\n'
    config.write_text(config.read_text() + more)
    cause = "identity model 'echo' needs as many outputs as inputs"
    eventually(lambda: reloaded(client, "echo", cause), "its fault is named")
    config.write_text(config.read_text().replace(more, ""))
    eventually(lambda: reloaded(client, "echo", "'max_batch_size': 5"), "it is cured")
    assert echo(client, [4.0]) == [4.0]


def test_poll_mode_follows_the_folder(start: Start, models: Path) -> None:
    server = start(models, "--model-control-mode=poll", "--repository-poll-secs=1")
    client = Client(server.url(""), timeout=30)
    write_identity(models, "second")
    eventually(lambda: client.exchange("GET", "/v2/models/second/ready").status == 200, "the second model is served")
    assert echo(client, [2.0], "second") == [2.0]
    shutil.rmtree(models / "second")
    eventually(lambda: client.exchange("GET", "/v2/models/second/ready").status != 200, "it has gone")


def test_a_signal_ends_all_of_it(start: Start, models: Path) -> None:
    server = start(models)
    triton = server.triton_pid()
    assert stubs_of(triton)
    assert server.stop() == 0
    assert not psutil.pid_exists(triton)
    assert not stubs_of(triton)
    assert not list(Path("/dev/shm").glob(f"bident_{server.pid}_*"))
    assert "Signal (15) received" in server.log.read_text()


def test_a_triton_that_dies_takes_its_models_along_and_is_reported(start: Start, models: Path) -> None:
    server = start(models)
    triton = server.triton_pid()
    os.kill(triton, signal.SIGKILL)
    code, said = server.ends()
    assert code == -signal.SIGKILL
    assert "killed by SIGKILL; if nobody did that, memory ran out" in said
    eventually(lambda: not stubs_of(triton), "its models have ended")


def test_a_triton_does_not_outlive_its_parent(start: Start, models: Path) -> None:
    server = start(models)
    triton = server.triton_pid()
    os.kill(server.pid, signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(triton) and not stubs_of(triton), "Triton and its models have ended", 40)


def test_a_taken_port_is_named_with_its_holder(start: Start, models: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        code, said = start(models, f"--grpc-port={port}", wait=False).ends()
    assert code == 1
    assert f"port {port} (gRPC) is in use by" in said
    assert f"(pid {os.getpid()})" in said


def test_a_stub_for_another_python_only_is_named(start: Start, models: Path, home: Path) -> None:
    stubs = server_home(python_paths()[0]) / "python_backend_stubs"
    (home / "python_backend_stubs").mkdir()
    (home / "python_backend_stubs" / "3.8").symlink_to(stubs / "3.8")
    code, said = start(models, wait=False, home=home).ends()
    assert code == 1
    assert f"has no {STUB} for Python" in said
    assert "(there are stubs for 3.8)" in said


def test_a_library_that_is_not_found_is_named(start: Start, models: Path, home: Path) -> None:
    """A copy is not where its libraries are, as after a wrong LD_LIBRARY_PATH."""
    binary = home / "bin" / "tritonserver"
    shutil.copy2(binary.resolve(), home / "copy")
    binary.unlink()
    (home / "copy").rename(binary)
    (home / "backends" / "python" / STUB).symlink_to(
        next((server_home(python_paths()[0]) / "python_backend_stubs").glob(f"{_python()}/{STUB}"))
    )
    code, said = start(models, wait=False, home=home).ends()
    assert code == 1
    assert "cannot be run: the library lib" in said
    assert "add the folder that holds it to LD_LIBRARY_PATH" in said


def _python() -> str:
    return python_paths()[0].parent.name.removeprefix("python")


def test_a_corrupt_model_is_named_with_its_cause(start: Start, models: Path, tmp_path: Path) -> None:
    broken = models / "broken"
    (broken / "1").mkdir(parents=True)
    (broken / "1" / "model.onnx").write_bytes(b"no onnx")
    log = tmp_path / "other.log"
    code, said = start(models, f"--log-file={log}", wait=False).ends()
    assert code == 1
    assert "failed to load 'broken' version 1" in log.read_text()
    summary = said.rpartition("Triton ended after ")[2]
    assert "failed to load 'broken' version 1" in summary
    assert "model.onnx" in summary
    assert "At:" not in summary


def test_protection_that_it_lacks_is_refused(start: Start, models: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    code, said = start(models, f"--api-key-file={keys}", wait=False).ends()
    assert code == 1
    assert "--api-key-file with --engine=triton: this Triton has no such flag" in said


def test_labels_and_restrictions_reach_it(start: Start, models: Path) -> None:
    labelled = write_identity(models, "labelled", dims="3")
    config = (labelled / "config.pbtxt").read_text()
    output = 'output [ { name: "Y", '
    (labelled / "config.pbtxt").write_text(config.replace(output, f'{output}label_filename: "names.txt", '))
    (labelled / "names.txt").write_text("low\nmiddle\nhigh\n")
    server = start(models, "--http-restricted-api=model-repository:admin=sesame", "--workers=1")
    tensor = {"name": "X", "shape": [1, 3], "datatype": "FP32", "data": [1, 5, 3]}
    wanted = {"name": "Y", "parameters": {"classification": 2}}
    client = Client(server.url(""), timeout=30)
    answer = client.call("POST", "/v2/models/labelled/infer", {"inputs": [tensor], "outputs": [wanted]})
    assert answer["outputs"][0]["data"] == ["5.000000:1:middle", "3.000000:2:high"]
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(urllib.request.Request(server.url("/v2/repository/index"), method="POST"))
    assert "--workers has no effect with --engine=triton" in server.log.read_text()
