"""Memory of a Python model's worker and of its server, over a hundred thousand requests of all sizes."""

from __future__ import annotations

import random

from benchmarks import python_models
from benchmarks.echo_client import Shape, echo
from benchmarks.plan import Plan
from benchmarks.processes import held_megabytes
from benchmarks.servers import Bident, Server
from benchmarks.table import Bar, Row, compared

TITLE = "Memory of a Python model"
MODEL = "identity_varied"
CONNECTIONS = 8
WIDTHS = (1, 16, 256, 4096)
"""Values in a row. Few, so that requests of the same width meet and run as one batch."""

MOST_ROWS = 256
LARGEST = (MOST_ROWS, max(WIDTHS))
"""4 MB; the smallest request is a single value of 4 bytes."""

WARM_SHARE = 0.1
"""The share of the requests after which the server counts as warm."""

BAR = Bar(at_most=1.1)


def run(plan: Plan) -> list[Row]:
    """What the worker and the server hold when warm, and what they hold in the end."""
    repository = python_models.identity(
        plan.workspace / "python_memory", MODEL, dims=-1, max_batch_size=CONNECTIONS * MOST_ROWS
    )
    with Bident(repository, plan.log("python_memory")) as server:
        return measure(plan, server)


def measure(plan: Plan, server: Server) -> list[Row]:
    """Warm up, look, go on, look again."""
    shapes = sizes(plan.varied_requests)
    warm_up = int(len(shapes) * WARM_SHARE)
    # Not left to chance: buffers have their greatest size when everybody has sent the largest at once.
    echo(server, MODEL, [LARGEST] * (4 * CONNECTIONS) + shapes[:warm_up], connections=CONNECTIONS)
    warm = held_megabytes(server.pid)
    echo(server, MODEL, shapes[warm_up:], connections=CONNECTIONS)
    worn = held_megabytes(server.pid)
    return [
        compared(f"{whose} after {len(shapes):,} requests", "MB", BAR, [end], "when warm", [start])
        for whose, end, start in (
            ("worker", worn.by_children, warm.by_children),
            ("server", worn.by_itself, warm.by_itself),
        )
    ]


def sizes(count: int, seed: int = 0) -> list[Shape]:
    """Shapes of ``count`` requests: many small ones, few large ones, some of everything between."""
    chance = random.Random(seed)
    return [(int(MOST_ROWS ** chance.random()), _width(chance)) for _ in range(count)]


def _width(chance: random.Random) -> int:
    return chance.choices(WIDTHS, weights=(40, 30, 20, 10))[0]
