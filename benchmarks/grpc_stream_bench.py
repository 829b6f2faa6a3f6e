"""Many small responses from one decoupled Python model, over ModelStreamInfer: Bident and a real Triton."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
from tritonclient.grpc import service_pb2

from benchmarks import grpc_client, python_models
from benchmarks.peers.triton import RealTriton
from benchmarks.plan import Plan
from benchmarks.rounds import interleave
from benchmarks.servers import HOST, Bident
from benchmarks.table import Bar, Row, compared

TITLE = "count_up, a decoupled Python model, over ModelStreamInfer"
METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
TRITON = "Triton 2.51"
MODEL = "count_up"
RESPONSES = 10_000


def run(plan: Plan) -> list[Row]:
    """How many responses a second one stream gets, of ``RESPONSES`` to one request."""
    repository = python_models.count_up(plan.workspace / "count_up_repository", MODEL)
    with (
        Bident(repository, plan.log("stream_bident")) as ours,
        RealTriton(repository, plan.log("stream_triton")) as triton,
    ):
        turns = [partial(_turn, plan, port) for port in (ours.grpc_port, triton.grpc_port)]
        mine, theirs = interleave(plan.rounds, *turns)
    name = f"{RESPONSES:,} responses to one request"
    return [compared(name, "responses/s", Bar(at_least=2.0), mine, TRITON, theirs)]


def _turn(plan: Plan, port: int) -> float:
    """Ask again and again for as long as a turn lasts; the best of the rates, for a stream is short."""
    rates = []
    end = time.monotonic() + plan.seconds
    while not rates or time.monotonic() < end:
        answer = grpc_client.call(HOST, port, METHOD, _request())
        _check(answer.messages)
        rates.append(RESPONSES / answer.seconds)
    return max(rates)


def _request() -> bytes:
    request = service_pb2.ModelInferRequest(model_name=MODEL, id="1")
    request.inputs.add(name="IN", datatype="INT32", shape=(1,))
    request.raw_input_contents.append(np.array([RESPONSES], np.int32).tobytes())
    return request.SerializeToString()


def _check(messages: list[bytes]) -> None:
    """Every number must have come, in its order."""
    responses = [service_pb2.ModelStreamInferResponse.FromString(message) for message in messages]
    errors = [response.error_message for response in responses if response.error_message]
    if errors:
        raise RuntimeError(f"the stream holds an error: {errors[0]}")
    numbers = np.frombuffer(b"".join(response.infer_response.raw_output_contents[0] for response in responses), "<i4")
    if not np.array_equal(numbers, np.arange(RESPONSES)):
        raise RuntimeError(f"the stream holds {len(numbers)} numbers, not {RESPONSES} in their order")
