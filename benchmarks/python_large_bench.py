"""Sixteen megabytes to a Python model and back, in binary over HTTP: Bident and a real Triton."""

from __future__ import annotations

from functools import partial

from benchmarks import python_models
from benchmarks.echo_client import ITEM_BYTES, echo
from benchmarks.peers.triton import RealTriton
from benchmarks.plan import Plan
from benchmarks.rounds import interleave
from benchmarks.servers import Bident, Server
from benchmarks.table import Bar, Row, compared

MEGABYTES = 16
TITLE = f"{MEGABYTES} MB to a Python model and back, binary over HTTP"
MODEL = "identity_large"
SHAPE = (MEGABYTES * 1024 * 1024 // ITEM_BYTES,)
REQUESTS_PER_SECOND = 20
"""About what one client gets: a turn takes about as long as the plan wants."""

BAR = Bar(at_least=1.0)
TRITON = "Triton 2.51 Python backend"


def run(plan: Plan) -> list[Row]:
    """Throughput of 1 and of 2 clients, who check every byte that comes back."""
    repository = python_models.identity(plan.workspace / "python_large", MODEL, dims=-1)
    with (
        Bident(repository, plan.log("python_large_bident")) as ours,
        RealTriton(repository, plan.log("python_large_triton")) as triton,
    ):
        return [_throughput(plan, clients, ours, triton) for clients in (1, 2)]


def _throughput(plan: Plan, clients: int, ours: Server, triton: Server) -> Row:
    shapes = [SHAPE] * (REQUESTS_PER_SECOND * plan.seconds)
    turns = [partial(echo, server, MODEL, shapes, connections=clients) for server in (ours, triton)]
    mine, theirs = ([loop.per_second for loop in loops] for loops in interleave(plan.rounds, *turns))
    name = f"throughput, {clients} client{'s' * (clients > 1)}"
    return compared(name, "req/s", BAR, mine, TRITON, theirs)
