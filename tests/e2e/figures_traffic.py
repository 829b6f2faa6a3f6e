"""The same traffic for a real Triton and for Bident, and what both say of it: figures, metrics and traces.

``python tests/e2e/figures_traffic.py TARGET`` starts the real server (``make triton``) with ``FLAGS``, sends the
traffic, and writes what it said to TARGET (``data/triton_2_51_figures.json``). The requests are sent one after the
other, so that what each one counts does not depend on time.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from asking import Answer, Asker, tensor, x
from ensemble_repository import step, write_ensemble
from model_folders import declared, parameters
from python_repository import DECOUPLED, one_instance, write_python, write_script
from wire_http import Wire, request

DATA = Path(__file__).parent / "data" / "triton_2_51_figures.json"
METRICS = ("--metrics-config=summary_latencies=true", "--metrics-config=histogram_latencies=true")
_ROWS = declared("input", "X", dims="[ 2 ]") + declared("output", "Y", dims="[ 2 ]")
_DEADLINE_SECONDS = 20.0


def flags(base: Path) -> tuple[str, ...]:
    """How both servers are started."""
    return (
        "--model-control-mode=explicit",
        "--load-model=*",
        *METRICS,
        f"--trace-config=triton,file={base / 'trace.json'}",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=level=TENSORS",
        "--trace-config=rate=1",
        "--trace-config=triton,log-frequency=1",
    )


def write_figured(repository: Path, gate: Path) -> None:
    """The models that the traffic goes to."""
    for name in ("one", "peer", "untouched"):
        write_script(repository, name)
    write_script(repository, "streams", DECOUPLED)
    counts = declared("output", "ROWS", "INT32", "[ 1 ]")
    write_python(repository, "rows", "rows", f"{_ROWS}{counts}max_batch_size: 4 dynamic_batching {{ }}")
    policy = "dynamic_batching { default_queue_policy { max_queue_size: 1 } }"
    held = f"{_ROWS}max_batch_size: 1 {policy} {one_instance()} {parameters(GATE=str(gate))}"
    write_python(repository, "held", "held", held)
    code = ("CODE:BYTES:1", "ANSWER:BYTES:1")
    write_ensemble(repository, "chain", 4, "X:FP32:2", "Y:FP32:2", step("rows", "X=X", "Y=t"), step("rows", "X=t", "Y=Y"))
    write_ensemble(repository, "twice", 0, *code, step("one", "CODE=CODE", "ANSWER=a"), step("peer", "CODE=a", "ANSWER=ANSWER"))
    write_ensemble(repository, "streamed", 0, *code, step("streams", "CODE=CODE", "ANSWER=ANSWER"))


def script(code: str) -> dict[str, Any]:
    return tensor("CODE", "BYTES", [1], [code])


def send(number: int) -> str:
    """Code of a decoupled model that sends so many responses, and the end apart."""
    sends = "".join(f"s.send(said({value})); " for value in range(number))
    return f"s = request.get_response_sender(); {sends}s.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"


_LAST = "request.get_response_sender().send(said(1), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"
_ERROR = (
    "s = request.get_response_sender(); s.send(said(0)); s.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("
    "'no'))); s.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"
)


def rows(model: str, count: int, **rest: Any) -> Callable[[Asker], Answer]:
    data = [float(number) for number in range(2 * count)]
    return lambda ask: ask.infer(model, tensor("X", "FP32", [count, 2], data), **rest)


def run(model: str, code: str, **rest: Any) -> Callable[[Asker], Answer]:
    return lambda ask: ask.infer(model, script(code), **rest)


def stream(model: str, code: str) -> Callable[[Asker], Answer]:
    return lambda ask: ask.post(f"/v2/models/{model}/generate_stream", {"CODE": code})


REQUESTS: dict[str, Callable[[Asker], Answer]] = {
    "success": run("one", "answer = 1", id="first"),
    "error of the model": run("one", "response = pb_utils.InferenceResponse(error=pb_utils.TritonError('no'))"),
    "exception of the model": run("one", "raise ValueError('no')"),
    "unknown input": lambda ask: ask.infer("one", x("FP32", [1.0])),
    "wrong datatype": lambda ask: ask.infer("one", tensor("CODE", "FP32", [1], [1.0])),
    "wrong shape": lambda ask: ask.infer("one", tensor("CODE", "BYTES", [2], ["a", "b"])),
    "unknown output": run("one", "answer = 1", outputs=[{"name": "G"}]),
    "unknown model": run("nobody", "answer = 1"),
    "one output": run("one", "response = pb_utils.InferenceResponse([*said(1).output_tensors(), tensor('F', [1, 2])])",
                      outputs=[{"name": "F"}]),
    "one row": rows("rows", 1),
    "three rows": rows("rows", 3, id="three"),
    "three rows again": rows("rows", 3),
    "too many rows": rows("rows", 5),
    "call": run("one", "answer = read(ask('peer', request_id='inner').exec())"),
    "call that fails": run("one", "answer = read(ask('peer', 'raise ValueError(1)').exec())"),
    "call of nobody": run("one", "answer = read(ask('nobody').exec())"),
    "call with a trace": run("one", "answer = read(ask('peer', trace=request.trace()).exec())"),
    "ensemble": rows("chain", 2, id="chained"),
    "ensemble of scripts": run("twice", "answer = 'x'"),
    "ensemble that fails": run("twice", "raise ValueError('no')"),
    "stream of three": stream("streams", send(3)),
    "stream of none": stream("streams", send(0)),
    "stream whose last is the end": stream("streams", _LAST),
    "stream with an error": stream("streams", _ERROR),
    "stream of an ensemble": stream("streamed", send(2)),
    "infer of a decoupled model": run("streams", send(1)),
}  # fmt: skip


def held_up(ask: Asker, gate: Path, metrics: Callable[[], dict[str, float]]) -> None:
    """One request runs, one waits, one is refused; then one that waits is given up by its client."""
    body = json.dumps({"inputs": [tensor("X", "FP32", [1, 2], [1.0, 2.0])]}).encode()
    whole = request("/v2/models/held/infer", body, "Content-Type: application/json")
    pending = 'nv_inference_pending_request_count{model="held",version="1"}'

    def wait(count: int) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while metrics()[pending] != count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{pending} is {metrics()[pending]}, not {count}")

    with Wire(ask.port) as first, Wire(ask.port) as second:
        first.send(whole)
        _started(ask, wait)
        second.send(whole)
        wait(1)
        refused = ask.post("/v2/models/held/infer", body)
        assert refused.status == 503, refused
        second.socket.close()
        if gate is not None:
            time.sleep(0.3)
        gate.touch()
        assert first.read().status == 200
    wait(0)


def _started(ask: Asker, wait: Callable[[int], None]) -> None:
    time.sleep(0.3)
    wait(0)
