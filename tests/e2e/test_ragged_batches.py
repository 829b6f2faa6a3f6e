"""Ragged batches through the whole server, with an ONNX model and a Python one."""

from __future__ import annotations

import threading
from pathlib import Path

import onnx
import pytest
from asking import Asker, tensor
from model_folders import declared, parameters, write_model
from onnx import TensorProto, helper
from python_repository import write_python
from serving import Launch, TensorServer, eventually

BATCHING = "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 200000 preferred_batch_size: [ 4 ] }\n"
RAGGED = "allow_ragged_batch: true"
COMPUTED = """
batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: "counts" data_type: TYPE_INT32 source_input: "X" } ]
batch_output [ { target_name: "Y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "X" } ]
"""


def doubler() -> onnx.ModelProto:
    """Y = 2 X over all elements of the batch; ROWS = how many elements each request has."""
    nodes = [
        helper.make_node("Add", ["X", "X"], ["Y"]),
        helper.make_node("Unsqueeze", ["counts", "axis"], ["ROWS"]),
    ]
    inputs = [
        helper.make_tensor_value_info("X", TensorProto.FLOAT, ["all"]),
        helper.make_tensor_value_info("counts", TensorProto.INT32, ["n"]),
    ]
    outputs = [
        helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["all"]),
        helper.make_tensor_value_info("ROWS", TensorProto.INT32, ["n", 1]),
    ]
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "double", inputs, outputs, [axis])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def ask_at_once(server: TensorServer, factor: float) -> set[int]:
    """Four clients send lengths 1 to 4 at the same time until some have met; returns the numbers in ROWS."""
    rows: set[int] = set()
    wrong: list[str] = []

    def client(length: int) -> None:
        ask = Asker(server.port)
        for turn in range(10):
            values = [float(turn * 10 + place) for place in range(length)]
            body = {"inputs": [tensor("X", "FP32", [1, length], values)]}
            answer = ask.post("/v2/models/m/infer", body)
            if answer.status != 200 or answer.data() != [factor * value for value in values]:
                wrong.append(answer.body.decode())
            rows.update(answer.data("ROWS"))
        ask.close()

    def have_run_together() -> bool:
        threads = [threading.Thread(target=client, args=(length,)) for length in (1, 2, 3, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong[0]
        stats = Asker(server.port).get("/v2/models/m/stats").json["model_stats"][0]
        return bool(stats["execution_count"] < stats["inference_count"])

    eventually(have_run_together, "requests of different lengths run together")
    return rows


def test_an_onnx_model_sees_one_flat_tensor(launch: Launch, tmp_path: Path) -> None:
    config = (
        'backend: "onnxruntime"\n'
        + BATCHING
        + declared("input", "X", "FP32", "[ -1 ]", RAGGED)
        + declared("output", "Y", "FP32", "[ -1 ]")
        + declared("output", "ROWS", "INT32", "[ 1 ]")
        + COMPUTED
    )
    write_model(tmp_path / "repository", "m", config, model_onnx=doubler())
    assert ask_at_once(launch(tmp_path / "repository"), 2) == {1, 2, 3, 4}


@pytest.mark.parametrize("lane", ["process", "thread"])
def test_a_python_model_sees_each_request_in_its_own_shape(launch: Launch, tmp_path: Path, lane: str) -> None:
    config = (
        BATCHING
        + declared("input", "X", "FP32", "[ -1 ]", RAGGED)
        + declared("output", "Y", "FP32", "[ -1 ]")
        + declared("output", "ROWS", "INT32", "[ 1 ]")
        + parameters(LANE=lane)
    )
    write_python(tmp_path / "repository", "m", "rows", config)
    assert max(ask_at_once(launch(tmp_path / "repository"), 1)) > 1
