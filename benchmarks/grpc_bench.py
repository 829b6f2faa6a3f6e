"""Iris as ModelInfer over gRPC: Bident, the bare loop and a real Triton, side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from tritonclient.grpc import service_pb2

from benchmarks import grpc_client, h2load, models
from benchmarks.http_bench import triton_repository
from benchmarks.peers.triton import RealTriton
from benchmarks.plan import Plan
from benchmarks.rounds import interleave
from benchmarks.servers import HOST, BareGrpc, Bident
from benchmarks.table import Bar, Row, compared

TITLE = "iris_sklearn, ModelInfer over gRPC"
METHOD = "/inference.GRPCInferenceService/ModelInfer"
BARE = "bare loop"
TRITON = "Triton 2.51 Python backend"
SHAPES = ((1, 1), (8, 1), (8, 4))
"""Connections, and calls open on each."""
WITH_TRITON = (8, 4)


def run(plan: Plan) -> list[Row]:
    """Throughput at 1 and 8 connections with one call each, and with four."""
    message = iris_request()
    body = plan.workspace / "iris.grpc"
    body.write_bytes(h2load.framed(message))
    repository = plan.workspace / "iris_grpc_repository"
    model = models.iris(repository, "iris_sklearn")
    with (
        Bident(repository, plan.log("grpc_bident")) as ours,
        BareGrpc(model, plan.log("grpc_bare")) as bare,
        RealTriton(triton_repository(plan, model, "iris_grpc_triton"), plan.log("grpc_triton")) as triton,
    ):
        ports = (ours.grpc_port, bare.port, triton.grpc_port)
        for port in ports:
            _check_answer(port, message)
        turns = [partial(_turn, plan, body, port) for port in ports]
        return [row for connections, streams in SHAPES for row in _throughput(plan, turns, connections, streams)]


def iris_request() -> bytes:
    """One setosa, as its client would send it."""
    request = service_pb2.ModelInferRequest(model_name="iris_sklearn")
    request.inputs.add(name="X", datatype="FP32", shape=(1, 4))
    request.raw_input_contents.append(np.array([5.1, 3.5, 1.4, 0.2], np.float32).tobytes())
    return request.SerializeToString()


Turn = Callable[[int, int], h2load.Load]
"""Runs one turn under load, with so many connections and calls open on each."""


def _turn(plan: Plan, body: Path, port: int, connections: int, streams: int) -> h2load.Load:
    url = f"http://{HOST}:{port}{METHOD}"
    return h2load.run(url, body, connections=connections, streams=streams, seconds=plan.seconds)


def _throughput(plan: Plan, turns: list[Turn], connections: int, streams: int) -> list[Row]:
    ours, bare, triton = turns
    contenders = [ours, bare, *([triton] if (connections, streams) == WITH_TRITON else [])]
    loads = interleave(plan.rounds, *(partial(turn, connections, streams) for turn in contenders))
    mine, loop, *real = ([load.per_second for load in each] for each in loads)
    name = f"throughput, {connections} connections of {streams}"
    return [
        compared(name, "req/s", Bar(at_least=0.6), mine, BARE, loop),
        *(compared(name, "req/s", Bar(at_least=3.0), mine, TRITON, each) for each in real),
    ]


def _check_answer(port: int, message: bytes) -> None:
    """All contenders must give the same, right answer, or their speed means nothing."""
    (answer,) = grpc_client.call(HOST, port, METHOD, message).messages
    response = service_pb2.ModelInferResponse.FromString(answer)
    raw = {output.name: data for output, data in zip(response.outputs, response.raw_output_contents, strict=True)}
    label = np.frombuffer(raw["label"], np.int64)
    best = np.frombuffer(raw["probabilities"], np.float32)[0]
    if label.tolist() != [0] or not 0.99 < best <= 1:
        raise RuntimeError(f"the server on port {port} classifies a setosa as {label} with {best}")
