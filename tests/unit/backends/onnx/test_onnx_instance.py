"""Execution: what is fetched, what it costs, and what a failure says."""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path

import numpy as np
import onnx_models as build
import onnxruntime as ort
import pytest
from onnx import TensorProto

from bident.backends.base import Instance
from bident.errors import Code, ServeError

FP32 = TensorProto.FLOAT


@pytest.fixture
def total(tmp_path: Path) -> Instance:
    """``sum`` = ``left`` + ``right``, both ``[N, L]``."""
    text = "max_batch_size: 4" + build.tensors("input", ("left", "FP32", "[ -1 ]"), ("right", "FP32", "[ -1 ]"))
    files = build.folder(tmp_path, build.add(["N", "L"], ["N", "L"]))
    return build.load(files, build.config(text + build.tensors("output", ("sum", "FP32", "[ -1 ]"))))


def failure_of(instance: Instance, **inputs: np.ndarray) -> ServeError:
    with pytest.raises(ServeError) as failure:
        instance.execute(inputs)
    return failure.value


def test_wrong_dimension_is_the_clients_fault(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    instance = build.load(build.folder(tmp_path, build.matmul()), build.config(build.x_to_y()))
    error = failure_of(instance, x=np.ones((1, 5), np.float32))
    assert error.code is Code.INVALID_ARG
    assert error.message == "model 'm': unexpected shape for input 'x'. Expected [-1,3], got [1,5]"
    assert capfd.readouterr() == ("", "")


def test_wrong_rank_is_the_clients_fault(tmp_path: Path) -> None:
    instance = build.load(build.folder(tmp_path, build.matmul()), build.config(build.x_to_y()))
    error = failure_of(instance, x=np.ones(3, np.float32))
    assert error.code is Code.INVALID_ARG
    assert "Expected [-1,3], got [3]" in error.message


def test_dimensions_of_one_name_must_agree(total: Instance) -> None:
    error = failure_of(total, left=np.ones((1, 5), np.float32), right=np.ones((1, 4), np.float32))
    assert error.code is Code.INVALID_ARG
    assert "input 'right': its dimension 'L' is 4, but in input 'left' the same dimension is 5" in error.message


def test_missing_input_is_the_clients_fault(total: Instance) -> None:
    error = failure_of(total, left=np.ones((1, 5), np.float32))
    assert error.code is Code.INVALID_ARG
    assert "'right' FP32 [-1,-1] is missing" in error.message


def test_failure_inside_the_model_is_internal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    network = build.model(
        [build.value("x", TensorProto.INT64, ["N"])],
        [build.value("y", FP32, ["N", 2])],
        [build.node("Gather", ["table", "x"], ["y"])],
        build.weight("table", np.zeros((3, 2), np.float32)),
    )
    text = build.tensors("input", ("x", "INT64", "[ -1 ]")) + build.tensors("output", ("y", "FP32", "[ -1, 2 ]"))
    instance = build.load(build.folder(tmp_path, network), build.config(text))
    error = failure_of(instance, x=np.array([7]))
    assert error.code is Code.INTERNAL
    assert error.message.startswith("onnx runtime error 2: Non-zero status code returned while running Gather node.")
    assert "idx=7" in error.message
    assert error.message.endswith("(model 'm', inputs 'x' INT64 [1])")
    assert "\n" not in error.message
    assert capfd.readouterr() == ("", "")
    assert instance.execute({"x": np.array([2])})["y"].tolist() == [[0.0, 0.0]]


def test_source_files_of_onnx_runtime_are_left_out(tmp_path: Path) -> None:
    network = build.model(
        [build.value("x", FP32, ["N", 3])],
        [build.value("y", FP32, [1, 3])],
        [build.node("Reshape", ["x", "shape"], ["y"])],
        build.weight("shape", np.array([1, 3])),
    )
    text = build.tensors("input", ("x", "FP32", "[ -1, 3 ]")) + build.tensors("output", ("y", "FP32", "[ 1, 3 ]"))
    instance = build.load(build.folder(tmp_path, network), build.config(text))
    error = failure_of(instance, x=np.ones((2, 3), np.float32))
    assert error.code is Code.INTERNAL
    assert "Input shape:{2,3}, requested shape:{1,3}" in error.message
    assert "onnxruntime_src" not in error.message
    assert "ReshapeHelper(" not in error.message


def test_instances_of_one_model_run_side_by_side(tmp_path: Path) -> None:
    files = build.folder(tmp_path, build.matmul())
    instances = [build.load(files, build.config(build.x_to_y())) for _ in range(2)]
    wrong: list[int] = []

    def run(instance: Instance, number: int) -> None:
        given = np.full((1, 3), number, np.float32)
        for _ in range(200):
            if instance.execute({"x": given})["y"].tolist() != [[2.0 * number] * 3]:
                wrong.append(number)

    threads = [threading.Thread(target=run, args=(instances[number % 2], number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_close_gives_the_session_back(tmp_path: Path) -> None:
    import weakref

    instance = build.load(build.folder(tmp_path, build.matmul()), build.config(build.x_to_y()))
    session = weakref.ref(instance._session)  # type: ignore[attr-defined]
    instance.close()
    assert session() is None


def test_costs_little_more_than_the_session_alone(tmp_path: Path) -> None:
    """The goal is < 1 us over ``session.run``; the limit leaves room for a busy machine."""
    files = build.folder(tmp_path, build.matmul())
    instance = build.load(files, build.config(build.x_to_y()))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    bare = ort.InferenceSession(files.version_directory / "model.onnx", options, providers=["CPUExecutionProvider"])
    inputs = {"x": np.ones((1, 3), np.float32)}

    def microseconds(call: object, *arguments: object) -> float:
        start = time.perf_counter_ns()
        for _ in range(200):
            call(*arguments)  # type: ignore[operator]
        return (time.perf_counter_ns() - start) / 200_000

    pairs = [(microseconds(instance.execute, inputs), microseconds(bare.run, ["y"], inputs)) for _ in range(41)]
    assert statistics.median(ours - theirs for ours, theirs in pairs) < 3.0
