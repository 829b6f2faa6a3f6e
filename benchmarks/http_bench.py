"""Iris as JSON over HTTP: Bident, the bare loop and a real Triton, side by side."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import models, wrk
from benchmarks.client import infer
from benchmarks.peers.triton import RealTriton
from benchmarks.plan import Plan
from benchmarks.rounds import interleave
from benchmarks.servers import BareLoop, Bident, Server
from benchmarks.table import Bar, Row, compared

TITLE = "iris_sklearn, JSON over HTTP"
TRITON_REPOSITORY = Path(__file__).parent / "peers" / "triton_repo"
QUEUE_DELAY_US = 2000

BARE = "bare loop"
TRITON = "Triton 2.51 Python backend"
UNDELAYED = "no delay"


def run(plan: Plan) -> list[Row]:
    """Throughput at 8 and 32 connections, latency at 1, and what a declared queue delay costs one client."""
    body = plan.workspace / "iris.json"
    body.write_bytes(models.IRIS_BODY)
    repository = plan.workspace / "iris_repository"
    model = models.iris(repository, "iris_sklearn")
    models.iris(repository, "iris_delayed", queue_delay_us=QUEUE_DELAY_US)
    with (
        Bident(repository, plan.log("iris_bident")) as ours,
        BareLoop(model, plan.log("iris_bare")) as bare,
        RealTriton(triton_repository(plan, model, "iris_triton"), plan.log("iris_triton")) as triton,
    ):
        for server in (ours, bare, triton):
            _check_answer(server)
        load = partial(_load, plan, body)
        rows = _latency(plan, load(ours), load(bare))
        for connections in (8, 32):
            contenders = (load(ours), load(bare), load(triton))
            rows += _throughput(plan, connections, *contenders)
        return [*rows, _delay(plan, load(ours, "iris_delayed"), load(ours))]


Contender = Callable[[int], wrk.Load]
"""Runs one turn under load, with so many connections."""


def _load(plan: Plan, body: Path, server: Server, model: str = "iris_sklearn") -> Contender:
    url = server.url(f"/v2/models/{model}/infer")
    return lambda connections: wrk.run(url, body, connections=connections, seconds=plan.seconds)


def _latency(plan: Plan, ours: Contender, bare: Contender) -> list[Row]:
    mine, theirs = interleave(plan.rounds, partial(ours, 1), partial(bare, 1))
    return [compared("p50, 1 connection", "us", Bar(at_most=1.3), _p50(mine), BARE, _p50(theirs))]


def _throughput(plan: Plan, connections: int, ours: Contender, bare: Contender, triton: Contender) -> list[Row]:
    turns = [partial(contender, connections) for contender in (ours, bare, triton)]
    mine, loop, real = ([load.per_second for load in loads] for loads in interleave(plan.rounds, *turns))
    name = f"throughput, {connections} connections"
    return [
        compared(name, "req/s", Bar(at_least=0.6), mine, BARE, loop),
        compared(name, "req/s", Bar(at_least=3.0), mine, TRITON, real),
    ]


def _delay(plan: Plan, delayed: Contender, undelayed: Contender) -> Row:
    mine, theirs = interleave(plan.rounds, partial(delayed, 1), partial(undelayed, 1))
    name = f"p50, 1 connection, {QUEUE_DELAY_US} us queue delay"
    return compared(name, "us", Bar(at_most=1.2), _p50(mine), UNDELAYED, _p50(theirs))


def _p50(loads: list[wrk.Load]) -> list[float]:
    return [load.p50_us for load in loads]


def triton_repository(plan: Plan, model: Path, name: str) -> Path:
    """A repository called ``name`` in which a Python model of the real Triton runs the ONNX file ``model``."""
    repository = plan.workspace / f"{name}_repository"
    shutil.copytree(TRITON_REPOSITORY, repository)
    shutil.copy2(model, repository / "iris_sklearn" / "1" / "model.onnx")
    return repository


def _check_answer(server: Server) -> None:
    """All contenders must give the same, right answer, or their speed means nothing."""
    answer = infer(server, "iris_sklearn", models.IRIS_BODY)
    if answer["label"] != [0] or not 0.99 < answer["probabilities"][0] <= 1:
        raise RuntimeError(f"{server.url('')} classifies a setosa as {answer}")
