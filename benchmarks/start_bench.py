"""From the command to the first answers: ``bident serve`` with fraud_xgb and iris_sklearn."""

from __future__ import annotations

import http.client
import time

from benchmarks import models
from benchmarks.client import infer
from benchmarks.plan import Plan
from benchmarks.servers import Bident, Server
from benchmarks.table import Bar, Row, measured

TITLE = "Start"
DEADLINE_SECONDS = 30.0
POLL_SECONDS = 0.002


def run(plan: Plan) -> list[Row]:
    """Seconds until both models have answered, over several starts."""
    repository = models.copies(plan.workspace / "start_repository", ["fraud_xgb", "iris_sklearn"])
    # The first start reads files that later ones find in the page cache.
    _, *starts = [_start(Bident(repository, plan.log("start"), subcommand=("serve",))) for _ in range(plan.rounds + 1)]
    return [measured("bident serve, fraud + iris, to the first answer of each", "s", Bar(at_most=1.5), starts)]


def _start(server: Server) -> float:
    began = time.perf_counter()
    server.start()
    try:
        while not _answers(server):
            server.check_alive()
            if time.perf_counter() - began > DEADLINE_SECONDS:
                raise RuntimeError(f"no answer after {DEADLINE_SECONDS:g} s: {server.last_words()}")
            time.sleep(POLL_SECONDS)
        return time.perf_counter() - began
    finally:
        server.stop()


def _answers(server: Server) -> bool:
    try:
        infer(server, "iris_sklearn", models.IRIS_BODY)
        infer(server, "fraud_xgb", models.FRAUD_BODY)
    except (OSError, http.client.HTTPException, RuntimeError):
        # Not listening yet, or one of the models is still loading.
        return False
    return True
