"""How a server with gRPC clients starts and stops."""

from __future__ import annotations

import queue
import signal
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from model_folders import parameters, write_identity, write_model, x_to_y
from serving import Gate, Launch, eventually
from tritonclient.utils import InferenceServerException


def given(value: float) -> list[triton.InferInput]:
    tensor = triton.InferInput("X", [1], "FP32")
    tensor.set_data_from_numpy(np.array([value], np.float32))
    return [tensor]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "repository"
    made.mkdir()
    return made


def test_a_signal_lets_calls_in_flight_finish(launch: Launch, repository: Path, gate: Gate) -> None:
    held = gate.parameters() + parameters(LANE="thread")
    write_model(repository, "held", f'backend: "gated"\n{x_to_y()}{held}')
    server = launch(repository)
    came: queue.Queue[tuple[object, object]] = queue.Queue()
    with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        client.async_infer("held", given(3), lambda result, error: came.put((result, error)))
        gate.wait_for_batches(1)
        server.signal(signal.SIGTERM)
        eventually(lambda: "Signal (15) received." in server.log_text, "the signal is received")
        server.check_alive()
        gate.open()
        result, error = came.get(timeout=20)
        assert error is None
        assert result.as_numpy("Y").tolist() == [3.0]  # type: ignore[attr-defined]
        assert server.wait() == 0
    assert "Traceback" not in server.log_text


def test_an_open_stream_does_not_hold_up_the_end(launch: Launch, repository: Path) -> None:
    write_identity(repository, "quick")
    server = launch(repository, "--exit-timeout-secs=20")
    came: queue.Queue[tuple[object, object]] = queue.Queue()
    with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        client.start_stream(lambda result, error: came.put((result, error)))
        client.async_stream_infer("quick", given(1))
        assert came.get(timeout=20)[1] is None
        server.signal(signal.SIGTERM)
        assert server.wait(10) == 0
        error = came.get(timeout=20)[1]
        assert isinstance(error, InferenceServerException)
        client.stop_stream()


def test_without_the_door_nothing_listens(launch: Launch, repository: Path) -> None:
    write_identity(repository, "quick")
    server = launch(repository, "--allow-grpc=false")
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel, pytest.raises(grpc.FutureTimeoutError):
        grpc.channel_ready_future(channel).result(timeout=0.5)


def test_flags_of_keepalive_and_compression_are_taken(launch: Launch, repository: Path) -> None:
    write_identity(repository, "quick")
    server = launch(repository, "--grpc-infer-response-compression-level=high", "--grpc-max-connection-age=1000")
    with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        answer = client.infer("quick", given(7), compression_algorithm="gzip")
        assert answer.as_numpy("Y").tolist() == [7.0]
