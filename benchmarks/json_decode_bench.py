"""Decoding a JSON body of one ImageNet image: Bident's decoder and orjson + numpy."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import orjson
from numpy.typing import NDArray

from benchmarks.plan import Plan
from benchmarks.rounds import interleave
from benchmarks.table import Bar, Row, compared
from bident.doors.http.v2_request import parse
from bident.engine.shared_memory import SharedMemory

TITLE = "Decoding 150,528 floats of JSON"
SHAPE = (1, 3, 224, 224)
REPEATS = 5
NO_MEMORY = SharedMemory(allowed=False)


def image(seed: int = 0) -> NDArray[np.float32]:
    """A normalised image: no short numbers that a parser could be quick with."""
    return np.random.default_rng(seed).normal(0, 1, SHAPE).astype(np.float32)


def json_body(tensor: NDArray[np.float32], name: str = "data") -> bytes:
    """An infer request as Python clients write it: every FP32 element as a double, up to 17 digits."""
    entry = {"name": name, "shape": tensor.shape, "datatype": "FP32", "data": tensor.reshape(-1).tolist()}
    return orjson.dumps({"inputs": [entry]})


def run(plan: Plan) -> list[Row]:
    """Milliseconds per body, the best of a few in each round; the tensors must be equal."""
    tensor = image()
    body = json_body(tensor)
    for decode in (_ours, _orjson_numpy):
        np.testing.assert_array_equal(decode(body), tensor)
    mine, theirs = interleave(
        3 * plan.rounds, lambda: _milliseconds(_ours, body), lambda: _milliseconds(_orjson_numpy, body)
    )
    return [compared("decode one body", "ms", Bar(at_most=0.5), mine, "orjson + numpy", theirs)]


def _milliseconds(decode: Callable[[bytes], NDArray[np.float32]], body: bytes) -> float:
    def once() -> float:
        start = time.perf_counter()
        decode(body)
        return (time.perf_counter() - start) * 1e3

    return min(once() for _ in range(REPEATS))


def _ours(body: bytes) -> NDArray[np.float32]:
    """All that the HTTP door does with a body, to the typed request that the engine is given."""
    request, _ = parse(("resnet18", ""), body, None, 0, NO_MEMORY)
    tensor: NDArray[np.float32] = np.asarray(request.inputs["data"].data)
    return tensor


def _orjson_numpy(body: bytes) -> NDArray[np.float32]:
    entry = orjson.loads(body)["inputs"][0]
    return np.array(entry["data"], np.float32).reshape(entry["shape"])
