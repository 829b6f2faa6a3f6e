"""resnet18: what serving adds to ONNX Runtime, and what JSON adds to binary tensors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import orjson
from numpy.typing import NDArray

from benchmarks import models
from benchmarks.client import Loop, closed_loop
from benchmarks.json_decode_bench import image, json_body
from benchmarks.plan import Plan
from benchmarks.rounds import interleave
from benchmarks.servers import Bident, Server
from benchmarks.table import Bar, Row, compared

TITLE = "resnet18, one image a request"
CLIENTS = 4
OUTPUT = "resnetv15_dense0_fwd"


def run(plan: Plan) -> list[Row]:
    """Throughput of 4 clients against ONNX Runtime in process, then JSON against binary for one client."""
    rows: list[Row] = []
    for threads in sorted({1, os.cpu_count() or 1}):
        repository = plan.workspace / f"resnet_repository_{threads}"
        model = models.resnet(repository, "resnet18", threads=threads)
        with Bident(repository, plan.log(f"resnet_bident_{threads}")) as server:
            rows.append(_throughput(plan, server, model, threads))
            if threads == 1:
                rows.append(_json_cost(plan, server))
    return rows


def _throughput(plan: Plan, server: Server, model: Path, threads: int) -> Row:
    requests = 16 * plan.rounds
    send = _binary(plan, server, connections=CLIENTS, requests=requests)
    in_process = _in_process(model, threads, requests)
    mine, theirs = interleave(plan.rounds, lambda: send().per_second, in_process)
    name = f"throughput, {CLIENTS} clients, binary, {threads} thread{'s' * (threads > 1)}"
    return compared(name, "images/s", Bar(at_least=0.95), mine, "ONNX Runtime in process", theirs)


def _json_cost(plan: Plan, server: Server) -> Row:
    body = plan.workspace / "resnet.json"
    body.write_bytes(json_body(image()))
    headers = {"Content-Type": "application/json"}
    path = "/v2/models/resnet18/infer"
    requests = 3 * plan.rounds
    binary = _binary(plan, server, connections=1, requests=requests)
    mine, theirs = interleave(
        plan.rounds,
        lambda: closed_loop(server, path, body, connections=1, requests=requests, headers=headers).p50_ms,
        lambda: binary().p50_ms,
    )
    return compared("p50, 1 client, JSON", "ms", Bar(at_most=1.35), mine, "binary", theirs)


def _binary(plan: Plan, server: Server, *, connections: int, requests: int) -> Callable[[], Loop]:
    """A closed loop that sends one image in binary and asks for binary answers."""
    tensor = image()
    entry: dict[str, Any] = {"name": "data", "shape": tensor.shape, "datatype": "FP32"}
    entry["parameters"] = {"binary_data_size": tensor.nbytes}
    outputs = [{"name": OUTPUT, "parameters": {"binary_data": True}}]
    head = orjson.dumps({"inputs": [entry], "outputs": outputs})
    body = plan.workspace / "resnet.bin"
    body.write_bytes(head + tensor.tobytes())
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    path = "/v2/models/resnet18/infer"
    return lambda: closed_loop(server, path, body, connections=connections, requests=requests, headers=headers)


def _in_process(model: Path, threads: int, images: int) -> Callable[[], float]:
    """Images per second of ONNX Runtime alone, in the better of its two shapes: one by one, or in fours."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    # As the server has it: threads that spin between runs would be a little faster, and eat what other models need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def rate(batch: NDArray[np.float32]) -> float:
        calls = images // len(batch)
        start = time.perf_counter()
        for _ in range(calls):
            session.run(None, {"data": batch})
        return calls * len(batch) / (time.perf_counter() - start)

    batches = [image(), np.concatenate([image(seed) for seed in range(CLIENTS)])]
    better = max(batches, key=rate)
    return lambda: rate(better)
