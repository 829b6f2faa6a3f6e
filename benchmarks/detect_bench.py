"""yolo_detect: what serving adds to a detector of three steps."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import models
from benchmarks.client import ask, closed_loop
from benchmarks.peers.detect_in_process import DetectInProcess, Detections
from benchmarks.plan import Plan
from benchmarks.rounds import interleave
from benchmarks.servers import Bident, Server
from benchmarks.table import Bar, Row, compared

SIZE = (640, 480)
TITLE = f"yolo_detect, one {SIZE[0]} x {SIZE[1]} JPEG a request"
STEPS = ("yolo_preprocess", "yolov8n", "yolo_postprocess")
ENSEMBLE = "yolo_detect"
PATH = f"/v2/models/{ENSEMBLE}/infer"
CLIENTS = 4
REQUESTS_PER_SECOND = 8
"""About what a small machine does: a turn takes about as long as the plan wants. A multiple of ``CLIENTS``."""

BAR = Bar(at_least=0.85)
IN_PROCESS = "same steps in process"


def run(plan: Plan) -> list[Row]:
    """Pictures per second of 1 and of 4 clients, against the same steps in a process without a server."""
    repository = models.copies(plan.workspace / "detect_repository", [*STEPS, ENSEMBLE])
    photo = picture()
    in_process = DetectInProcess(repository, threads=os.cpu_count() or 1)
    with Bident(repository, plan.log("detect")) as server:
        check_answer(server, photo, in_process.one(photo))
        return [_throughput(plan, server, clients, in_process, photo) for clients in (1, CLIENTS)]


def picture() -> bytes:
    """A photograph as a phone would send it, at the size that the bar is about."""
    package = find_spec("skimage")
    (folder,) = package.submodule_search_locations or [""] if package else [""]
    content = BytesIO()
    with Image.open(Path(folder, "data", "astronaut.png")) as photo:
        photo.convert("RGB").resize(SIZE, Image.Resampling.BICUBIC).save(content, "JPEG", quality=90)
    return content.getvalue()


def _throughput(plan: Plan, server: Server, clients: int, in_process: DetectInProcess, photo: bytes) -> Row:
    count = REQUESTS_PER_SECOND * plan.seconds
    head, content = request(photo)
    body = plan.workspace / "detect.bin"
    body.write_bytes(content)
    send = partial(closed_loop, server, PATH, body, connections=clients, requests=count, headers=head)
    alone = best(in_process, photo, clients, count)
    mine, theirs = interleave(plan.rounds, lambda: send().per_second, alone)
    name = f"throughput, {clients} client{'s' * (clients > 1)}"
    return compared(name, "pictures/s", BAR, mine, IN_PROCESS, theirs)


def best(in_process: DetectInProcess, photo: bytes, clients: int, count: int) -> Callable[[], float]:
    """Pictures per second in process, arranged in the fastest of the ways in which ``clients`` would allow it.

    One client waits for its answer: one picture after the other. Several allow as many threads that each
    take the three steps, or as many pictures in one batch.
    """
    pool = ThreadPoolExecutor(clients)

    def one_by_one() -> float:
        return _rate(count, lambda: [in_process.one(photo) for _ in range(count)])

    def in_threads() -> float:
        return _rate(count, lambda: list(pool.map(in_process.one, [photo] * count)))

    def in_batches() -> float:
        return _rate(count, lambda: [in_process.together([photo] * clients) for _ in range(count // clients)])

    ways = [one_by_one] if clients == 1 else [one_by_one, in_threads, in_batches]
    return max(ways, key=lambda way: way())


def _rate(count: int, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def request(photo: bytes) -> tuple[dict[str, str], bytes]:
    """Headers and body of a request: the file in binary. The answer comes as JSON, as a browser would want it."""
    element = struct.pack("<I", len(photo)) + photo
    tensor = {"name": "IMAGE", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": len(element)}}
    document = json.dumps({"inputs": [tensor]}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(document))}
    return headers, document + element


def check_answer(server: Server, photo: bytes, expected: Detections) -> None:
    """The server must find the very objects that the steps in process find, or its speed means nothing."""
    headers, body = request(photo)
    answer = json.loads(ask(server, PATH, body, headers))
    found = {output["name"]: np.reshape(output["data"], output["shape"]) for output in answer["outputs"]}
    *numbers, labels = expected
    if not len(labels):
        raise RuntimeError("nothing is found in the picture: the last step has nothing to do")
    for name, values in zip(("BOXES", "SCORES", "CLASS_IDS"), numbers, strict=True):
        np.testing.assert_allclose(found[name], values, rtol=1e-3, atol=1e-3, err_msg=name)
    np.testing.assert_array_equal(found["LABELS"], [label.decode() for label in labels], err_msg="LABELS")
