"""Memory: what the sample models take, and whether a million requests leave anything behind."""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks import models, wrk
from benchmarks.client import infer
from benchmarks.json_decode_bench import json_body
from benchmarks.plan import Plan
from benchmarks.processes import resident_megabytes
from benchmarks.servers import Bident, Server
from benchmarks.table import Bar, Row, compared, measured

TITLE = "Memory"
BODIES = {
    "fraud_xgb": models.FRAUD_BODY,
    "iris_sklearn": models.IRIS_BODY,
    "resnet18": json_body(np.zeros((1, 3, 224, 224), np.float32)),
    "yolov8n": json_body(np.zeros((1, 3, 640, 640), np.float32), "images"),
    "imagenet_lite0": json_body(np.zeros((1, 3, 224, 224), np.float32), "input"),
}
SOAKED = ("iris_sklearn", "fraud_xgb")
CONNECTIONS = 32
WARM_SHARE = 0.1
"""The share of the soak after which the server counts as warm: allocators have grown to their size."""


def run(plan: Plan) -> list[Row]:
    """Resident memory after one request to each model, then before and after the soak."""
    repository = models.copies(plan.workspace / "memory_repository", list(BODIES))
    with Bident(repository, plan.log("memory")) as server:
        for model, body in BODIES.items():
            infer(server, model, body)
        loaded = resident_megabytes(server.pid)
        done = _soak(plan, server, int(plan.soak_requests * WARM_SHARE))
        warm = resident_megabytes(server.pid)
        done += _soak(plan, server, plan.soak_requests - done)
        worn = resident_megabytes(server.pid)
    return [
        measured(f"resident, {len(BODIES)} models, each asked once", "MB", Bar(at_most=400), [loaded]),
        compared(f"resident after {done:,} requests", "MB", Bar(0.98, 1.02), [worn], "when warm", [warm]),
    ]


def _soak(plan: Plan, server: Server, requests: int) -> int:
    """Send at least so many requests, by turns to the small models. Returns how many it were."""
    done = 0
    for model in itertools.cycle(SOAKED):
        if done >= requests:
            return done
        body = plan.workspace / f"soak_{model}.json"
        body.write_bytes(BODIES[model])
        url = server.url(f"/v2/models/{model}/infer")
        done += wrk.run(url, body, connections=CONNECTIONS, seconds=plan.seconds).requests
    return done
