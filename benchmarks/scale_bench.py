"""A thousand models in one repository: the index, a lookup, and what each adds to the start."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import models, wrk
from benchmarks.client import ask
from benchmarks.plan import Plan
from benchmarks.rounds import interleave
from benchmarks.servers import Bident, Server
from benchmarks.table import Bar, Row, compared, measured

TITLE = "1,000 models in one repository"
MANY = 1000
HALF = MANY // 2
INDEX = "/v2/repository/index"
NOISE_MS = 0.02
"""A start is not measured finer than 10 ms, which is this much for each of 500 models."""


def run(plan: Plan) -> list[Row]:
    """Index time and request latency among a thousand models, then start times of growing repositories."""
    single, half, many = (models.identities(plan.workspace / f"scale_{count}", count) for count in (1, HALF, MANY))
    with Bident(many, plan.log("scale_many")) as crowd, Bident(single, plan.log("scale_single")) as alone:
        rows = [_index(plan, crowd), _lookup(plan, crowd, alone)]
    return [*rows, _start(plan, single, half, many)]


def _index(plan: Plan, server: Server) -> Row:
    def once() -> float:
        start = time.perf_counter()
        content = ask(server, INDEX, b"{}")
        milliseconds = (time.perf_counter() - start) * 1e3
        if len(json.loads(content)) != MANY:
            raise RuntimeError(f"the index does not list {MANY} models")
        return milliseconds

    return measured(f"repository index of {MANY:,}", "ms", Bar(at_most=100), [once() for _ in range(3 * plan.rounds)])


def _lookup(plan: Plan, crowd: Server, alone: Server) -> Row:
    body = plan.workspace / "identity.json"
    body.write_bytes(models.IDENTITY_BODY)

    def p50(server: Server, model: str) -> float:
        url = server.url(f"/v2/models/{model}/infer")
        return wrk.run(url, body, connections=1, seconds=plan.seconds).p50_us

    among, single = interleave(
        plan.rounds, lambda: p50(crowd, f"identity_{MANY // 2}"), lambda: p50(alone, "identity_0")
    )
    return compared(f"p50, 1 connection, one of {MANY:,}", "us", Bar(at_most=1.15), among, "the only one", single)


def _start(plan: Plan, single: Path, half: Path, many: Path) -> Row:
    """Loading is all that grows: each further model costs what each of the first ones did."""
    starts = interleave(plan.rounds, *(_seconds(plan, repository) for repository in (single, half, many)))
    one, some, all_of_them = (statistics.median(seconds) * 1e3 for seconds in starts)
    first = max((some - one) / (HALF - 1), NOISE_MS)
    later = max((all_of_them - some) / (MANY - HALF), NOISE_MS)
    name = f"start, for each of the second {HALF} models"
    return compared(name, "ms", Bar(at_most=1.25), [later], "of the first", [first])


def _seconds(plan: Plan, repository: Path) -> Callable[[], float]:
    def once() -> float:
        began = time.perf_counter()
        with Bident(repository, plan.log("scale_start")):
            return time.perf_counter() - began

    return once
