"""The smallest Python model as JSON over HTTP: Bident in each of its lanes, and a real Triton."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from benchmarks import python_models, wrk
from benchmarks.client import infer
from benchmarks.peers.triton import RealTriton
from benchmarks.plan import Plan
from benchmarks.rounds import interleave
from benchmarks.servers import Bident, Server
from benchmarks.table import Bar, Row, compared

TITLE = "identity FP32[4], a Python model, JSON over HTTP"
BODY = b'{"inputs":[{"name":"INPUT0","shape":[1,4],"datatype":"FP32","data":[1.5,-2.0,3.25,4.0]}]}'
MAX_BATCH_SIZE = 64
TRITON = "Triton 2.51 Python backend"
PROCESS, THREAD, INLINE = "identity", "identity_thread", "identity_inline"
"""The same model.py and config.pbtxt; the second and third also ask to run inside the server."""

FASTER = {PROCESS: Bar(at_least=2.5), THREAD: Bar(at_least=4.0), INLINE: Bar(at_least=4.0)}
LANES = {PROCESS: "process lane", THREAD: "thread lane", INLINE: "inline lane"}


def run(plan: Plan) -> list[Row]:
    """Latency at 1 connection, throughput at 8 and 32, of each lane against Triton."""
    shared, ours = plan.workspace / "python_shared", plan.workspace / "python_ours"
    for repository in (shared, ours):
        python_models.identity(repository, PROCESS, dims=4, max_batch_size=MAX_BATCH_SIZE)
    python_models.identity(ours, THREAD, dims=4, max_batch_size=MAX_BATCH_SIZE, lane="thread")
    python_models.identity(ours, INLINE, dims=4, max_batch_size=MAX_BATCH_SIZE, lane="inline")
    with (
        Bident(ours, plan.log("python_bident")) as bident,
        RealTriton(shared, plan.log("python_triton")) as triton,
    ):
        check_lanes(bident)
        return measure(plan, bident, triton)


def check_lanes(bident: Server) -> None:
    """Raises RuntimeError unless one of the models runs in a worker process and the others in the server."""
    workers = len(psutil.Process(bident.pid).children())
    if workers != 1:
        raise RuntimeError(f"{PROCESS} alone should have a worker process, and there are {workers} of them")


def measure(plan: Plan, bident: Server, triton: Server) -> list[Row]:
    """``bident`` serves all models, ``triton`` the first."""
    body = plan.workspace / "python_identity.json"
    body.write_bytes(BODY)
    contenders = [*((bident, model) for model in LANES), (triton, PROCESS)]
    for server, model in contenders:
        _check_answer(server, model)
    turns = [partial(_turn, plan, body, server, model) for server, model in contenders]
    return [*_latency(plan, turns), *_throughput(plan, turns, 8), *_throughput(plan, turns, 32)]


Turn = Callable[[int], wrk.Load]
"""Runs one turn under load, with so many connections."""


def _turn(plan: Plan, body: Path, server: Server, model: str, connections: int) -> wrk.Load:
    url = server.url(f"/v2/models/{model}/infer")
    return wrk.run(url, body, connections=connections, seconds=plan.seconds)


def _latency(plan: Plan, turns: list[Turn]) -> list[Row]:
    loads = interleave(plan.rounds, *(partial(turn, 1) for turn in turns))
    *ours, triton = ([load.p50_us for load in each] for each in loads)
    return [
        compared(f"p50, 1 connection, {LANES[model]}", "us", Bar(at_most=1.0), mine, TRITON, triton)
        for model, mine in zip(LANES, ours, strict=True)
    ]


def _throughput(plan: Plan, turns: list[Turn], connections: int) -> list[Row]:
    loads = interleave(plan.rounds, *(partial(turn, connections) for turn in turns))
    *ours, triton = ([load.per_second for load in each] for each in loads)
    return [
        compared(f"throughput, {connections} connections, {LANES[model]}", "req/s", FASTER[model], mine, TRITON, triton)
        for model, mine in zip(LANES, ours, strict=True)
    ]


def _check_answer(server: Server, model: str) -> None:
    answer = infer(server, model, BODY)
    if answer != {"OUTPUT0": [1.5, -2.0, 3.25, 4.0]}:
        raise RuntimeError(f"{model} at {server.url('')} gives {answer} back")
