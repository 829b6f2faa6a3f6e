"""The same traffic for a real Triton and for Bident, and what both say of it: figures, metrics, traces and settings.

``python tests/e2e/figures_traffic.py`` starts the real server (``make triton``) with ``flags``, sends the traffic, and
writes what it said to ``data/triton_2_51_figures.json``. The requests come one after the other, so that what each one
counts does not depend on time.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
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
_ROWS = declared("input", "X", dims="[ 2 ]") + declared("output", "Y", dims="[ 2 ]")
_DEADLINE_SECONDS = 20.0
_END = "s.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"
_NO = "pb_utils.InferenceResponse(error=pb_utils.TritonError('no'))"

Send = Callable[[Asker], Answer]


def flags(base: Path) -> tuple[str, ...]:
    """How both servers are started; traces go to ``base``, one to a file."""
    return (
        "--model-control-mode=explicit",
        "--load-model=*",
        "--metrics-config=summary_latencies=true",
        "--metrics-config=histogram_latencies=true",
        f"--trace-config=triton,file={base / 'trace.json'}",
        "--trace-config=triton,log-frequency=1",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=level=TENSORS",
        "--trace-config=rate=1",
    )


def write_figured(repository: Path, gates: Path) -> None:
    """The models that the traffic goes to."""
    for name in ("one", "peer", "untouched"):
        write_script(repository, name)
    write_script(repository, "streams", DECOUPLED)
    counts = declared("output", "ROWS", "INT32", "[ 1 ]")
    write_python(repository, "rows", "rows", f"{_ROWS}{counts}max_batch_size: 4 dynamic_batching {{ }}")
    for name, policy in (
        ("held", "max_queue_size: 1"),
        ("impatient", "timeout_action: REJECT default_timeout_microseconds: 1000"),
    ):
        batching = f"max_batch_size: 1 dynamic_batching {{ default_queue_policy {{ {policy} }} }} {one_instance()}"
        write_python(repository, name, "held", f"{_ROWS}{batching} {parameters(GATE=str(gates / name))}")
    code, answer = "CODE:BYTES:1", "ANSWER:BYTES:1"
    pair, rows = ("X:FP32:2", "Y:FP32:2"), (step("rows", "X=X", "Y=t"), step("rows", "X=t", "Y=Y"))
    write_ensemble(repository, "chain", 4, *pair, *rows)
    scripts = (step("one", "CODE=CODE", "ANSWER=a"), step("peer", "CODE=a", "ANSWER=ANSWER"))
    write_ensemble(repository, "twice", 0, code, answer, *scripts)
    write_ensemble(repository, "streamed", 0, code, answer, step("streams", "CODE=CODE", "ANSWER=ANSWER"))


def _rows(model: str, count: int, **rest: Any) -> Send:
    data = [float(number) for number in range(2 * count)]
    return lambda ask: ask.infer(model, tensor("X", "FP32", [count, 2], data), **rest)


def _run(model: str, code: str, **rest: Any) -> Send:
    return lambda ask: ask.infer(model, tensor("CODE", "BYTES", [1], [code]), **rest)


def _stream(model: str, *responses: str) -> Send:
    """A decoupled model sends ``responses`` one by one, and the end apart."""
    code = "s = request.get_response_sender(); " + "".join(f"s.send({response}); " for response in responses) + _END
    return lambda ask: ask.post(f"/v2/models/{model}/generate_stream", {"CODE": code})


_LAST = "request.get_response_sender().send(said(1), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"
_TWO = "response = pb_utils.InferenceResponse([*said(1).output_tensors(), tensor('F', [1, 2.5])])"

REQUESTS: dict[str, Send] = {
    "success": _run("one", "answer = 1", id="first"),
    "error of the model": _run("one", f"response = {_NO}"),
    "exception of the model": _run("one", "raise ValueError('no')"),
    "unknown input": lambda ask: ask.infer("one", x("FP32", [1.0])),
    "wrong datatype": lambda ask: ask.infer("one", tensor("CODE", "FP32", [1], [1.0])),
    "wrong shape": lambda ask: ask.infer("one", tensor("CODE", "BYTES", [2], ["a", "b"])),
    "unknown output": _run("one", "answer = 1", outputs=[{"name": "G"}]),
    "unknown model": _run("nobody", "answer = 1"),
    "one output of two": _run("one", _TWO, outputs=[{"name": "F"}]),
    "one row": _rows("rows", 1),
    "three rows": _rows("rows", 3, id="three"),
    "three rows again": _rows("rows", 3),
    "too many rows": _rows("rows", 5),
    "call": _run("one", "answer = read(ask('peer', request_id='inner').exec())"),
    "call that fails": _run("one", "answer = read(ask('peer', 'raise ValueError(1)').exec()) and 1"),
    "call of nobody": _run("one", "answer = read(ask('nobody').exec()) and 1"),
    "call with a trace": _run("one", "answer = read(ask('peer', trace=request.trace()).exec())"),
    "ensemble": _rows("chain", 2, id="chained"),
    "ensemble of scripts": _run("twice", "answer = 'x'"),
    "ensemble that fails": _run("twice", "raise ValueError('no')"),
    "stream of three": _stream("streams", "said(0)", "said(1)", "said(2)"),
    "stream of none": _stream("streams"),
    "stream whose last is the end": lambda ask: ask.post("/v2/models/streams/generate_stream", {"CODE": _LAST}),
    "stream with an error": _stream("streams", "said(0)", _NO),
    "stream of an ensemble": _stream("streamed", "said(0)", "said(1)"),
    "infer of a decoupled model": _run("streams", _LAST),
}

_TRACE, _OF_ONE, _LOG = "/v2/trace/setting", "/v2/models/one/trace/setting", "/v2/logging"
_NOBODYS = "/v2/models/nobody/trace/setting"

SETTINGS: list[tuple[str, dict[str, Any] | bytes | None]] = [
    (_TRACE, None),
    (_TRACE, {}),
    (_TRACE, {"trace_level": ["OFF"]}),
    (_TRACE, {"trace_level": ["OFF", "TIMESTAMPS"]}),
    (_TRACE, {"trace_level": ["NONE"]}),
    (_TRACE, {"trace_level": "OFF"}),
    (_TRACE, {"trace_level": []}),
    (_TRACE, {"trace_level": [1]}),
    (_TRACE, {"trace_level": ["TIMESTAMPS"]}),
    (_TRACE, {"trace_rate": "5"}),
    (_TRACE, {"trace_rate": 5}),
    (_TRACE, {"trace_rate": "0"}),
    (_TRACE, {"trace_rate": "-1"}),
    (_TRACE, {"trace_rate": "x"}),
    (_TRACE, {"trace_rate": "5x"}),
    (_TRACE, {"trace_rate": "99999999999"}),
    (_TRACE, {"trace_rate": "5"}),
    (_TRACE, {"trace_count": "-2"}),
    (_TRACE, {"trace_count": "7"}),
    (_TRACE, {"trace_count": "y"}),
    (_TRACE, {"trace_count": "99999999999"}),
    (_TRACE, {"trace_count": None}),
    (_TRACE, {"log_frequency": "3"}),
    (_TRACE, {"log_frequency": "-3"}),
    (_TRACE, {"log_frequency": "z"}),
    (_TRACE, {"log_frequency": None}),
    (_TRACE, {"trace_file": "x"}),
    (_TRACE, {"trace_file": None}),
    (_TRACE, {"trace_mode": "opentelemetry"}),
    (_TRACE, {"nothing": 1}),
    (_TRACE, {"trace_rate": None}),
    (_TRACE, {"trace_level": None}),
    (_TRACE, b"[]"),
    (_TRACE, b"{"),
    (_TRACE, b""),
    (_OF_ONE, None),
    (_OF_ONE, {"trace_rate": "9"}),
    (_OF_ONE, {"trace_level": ["OFF"]}),
    (_TRACE, {"trace_count": "4"}),
    (_OF_ONE, None),
    (_OF_ONE, {"trace_rate": None}),
    (_OF_ONE, {"trace_level": None}),
    (_NOBODYS, None),
    (_NOBODYS, {"trace_rate": "1"}),
    ("/v2/models/one/versions/1/trace/setting", None),
    (_LOG, None),
    (_LOG, {}),
    (_LOG, {"log_file": "x"}),
    (_LOG, {"log_file": None}),
    (_LOG, {"log_info": False}),
    (_LOG, {"log_info": 1}),
    (_LOG, {"log_info": "true"}),
    (_LOG, {"log_info": None}),
    (_LOG, {"log_verbose_level": 1}),
    (_LOG, {"log_verbose_level": -1}),
    (_LOG, {"log_verbose_level": "1"}),
    (_LOG, {"log_verbose_level": True}),
    (_LOG, {"log_verbose_level": 1.5}),
    (_LOG, {"log_format": "ISO8601"}),
    (_LOG, {"log_format": "iso"}),
    (_LOG, {"log_format": 1}),
    (_LOG, {"log_warning": False, "log_format": "default", "log_verbose_level": 0, "log_info": True}),
    (_LOG, {"nothing": 1}),
    (_LOG, b"[]"),
    (_LOG, b"{"),
    (_LOG, b""),
    (_LOG, {"log_info": False, "log_error": 3}),
]
"""What is asked of the settings, in this order: the path, and the body of a POST."""


class Figured:
    """One of the servers, and what it says."""

    def __init__(self, port: int, metrics_port: int, base: Path) -> None:
        """``base``: where its traces go."""
        self.ask = Asker(port)
        self.base = base
        self._metrics = f"http://127.0.0.1:{metrics_port}/metrics"

    def page(self) -> str:
        return httpx.get(self._metrics, trust_env=False).text

    def sample(self, series: str) -> float:
        return samples(self.page())[series]

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(what)
            time.sleep(0.002)

    def send_all(self) -> None:
        """The requests that nothing holds up."""
        for send in REQUESTS.values():
            send(self.ask)

    def hold_up(self, name: str, gates: Path, meanwhile: Callable[[Wire], None]) -> None:
        """One request to the model ``name`` runs, and one waits, while something happens."""
        whole = request(f"/v2/models/{name}/infer", held_body(), "Content-Type: application/json")
        pending = f'nv_inference_pending_request_count{{model="{name}",version="1"}}'
        with Wire(self.ask.port) as first, Wire(self.ask.port) as second:
            first.send(whole)
            self.wait(lambda: Path(f"{gates / name}.begun").exists(), f"{name} has begun")
            second.send(whole)
            if name == "held":
                self.wait(lambda: self.sample(pending) == 1, f"a request to {name} waits")
            meanwhile(second)
            (gates / name).touch()
            assert first.read().status == 200
            self.wait(lambda: self.sample(pending) == 0, f"nothing waits for {name}")

    def said(self) -> dict[str, Any]:
        """Its figures, its metrics, and its traces."""
        page = self.page()
        return {
            "stats": {row["name"]: counts(row) for row in self.ask.get("/v2/models/stats").json["model_stats"]},
            "families": families(page),
            "samples": {name: value for name, value in sorted(samples(page).items()) if is_count(name)},
            "traces": traces(self.base),
        }

    def settings(self) -> list[dict[str, Any]]:
        """Its answers to ``SETTINGS``."""
        said = []
        for path, body in SETTINGS:
            answer = self.ask.get(path) if body is None else self.ask.post(path, body)
            said.append(
                {"status": answer.status, "json": json.loads(answer.body.replace(str(self.base).encode(), b""))}
            )
        return said


def held_body() -> bytes:
    return json.dumps({"inputs": [tensor("X", "FP32", [1, 2], [1.0, 2.0])]}).encode()


def counts(row: dict[str, Any]) -> dict[str, Any]:
    """What of one model's statistics does not depend on time."""
    return {
        "inference_count": row["inference_count"],
        "execution_count": row["execution_count"],
        "inference_stats": {name: duration["count"] for name, duration in row["inference_stats"].items()},
        "batch_stats": {
            str(batch["batch_size"]): [batch[f"compute_{part}"]["count"] for part in ("input", "infer", "output")]
            for batch in row["batch_stats"]
        },
        "memory_usage": row["memory_usage"],
        "keys": list(row),
    }


def samples(page: str) -> dict[str, float]:
    """Every sample of the page, its labels in order."""
    found = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            series, value = line.rsplit(" ", 1)
            name, _, labels = series.partition("{")
            text = ",".join(sorted(re.findall(r'\w+="[^"]*"', labels)))
            found[f"{name}{{{text}}}" if text else name] = float(value)
    return found


def is_count(series: str) -> bool:
    """Whether a sample does not depend on time."""
    name = series.partition("{")[0]
    return name.endswith(("_count", "_success", "_failure"))


def families(page: str) -> dict[str, list[Any]]:
    """Type and names of labels of every family of the page that has a HELP line too."""
    helped = re.findall(r"^# HELP (\S+) \S", page, re.MULTILINE)
    found: dict[str, list[Any]] = {}
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE):
        lines = re.findall(rf"^{name}(?:_count|_sum|_bucket)?(?:{{(.*)}})? \S+$", page, re.MULTILINE)
        labels = sorted({label for line in lines for label in re.findall(r'(\w+)="', line)})
        found[name] = [kind, labels, name in helped]
    return found


def traces(base: Path) -> list[list[dict[str, Any]]]:
    """The traces, each with its family, in the order in which their requests came; ids begin at 1 in each."""
    groups = []
    for file in base.glob("trace.json.*"):
        # The real server does not escape what is in strings.
        text = re.sub(r'"data":"(.*?)","shape"', _escaped, file.read_text(encoding="utf-8"), flags=re.DOTALL)
        groups.append(json.loads(text))
    groups.sort(key=lambda entries: min(entry["id"] for entry in entries))
    return [_family(entries) for entries in groups]


def _escaped(found: re.Match[str]) -> str:
    """One string of a tensor's data: the quotes around it are escaped, those in it may be not."""
    raw = found[1]
    try:
        data = json.loads(f'"{raw}"')
    except ValueError:
        data = '"' + raw[2:-2] + '"'
    return f'"data":{json.dumps(data)},"shape"'


def _family(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    numbers = {number: index + 1 for index, number in enumerate(sorted({entry["id"] for entry in entries}))}
    found: dict[int, dict[str, Any]] = {
        number: {"id": place, "moments": [], "tensors": []} for number, place in numbers.items()
    }
    for entry in entries:
        trace = found[entry["id"]]
        if "timestamps" in entry:
            trace["moments"] += [moment["name"] for moment in entry["timestamps"]]
        elif "tensor" in entry:
            trace["tensors"].append([entry["activity"], *entry["tensor"].values()])
        else:
            said = {key: value for key, value in entry.items() if key not in ("id", "parent_id")}
            trace.update(said, parent=numbers.get(entry.get("parent_id", 0), 0))
    return [found[number] for number in sorted(found)]


def capture() -> dict[str, Any]:
    """What a real Triton says."""
    from benchmarks.peers.triton import RealTriton

    base = Path(tempfile.mkdtemp())
    write_figured(base / "repository", base)
    with RealTriton(base / "repository", base / "log", *flags(base)) as server:
        figured = Figured(server.port, server.metrics_port, base)
        figured.send_all()

        def be_refused(second: Wire) -> None:
            assert figured.ask.post("/v2/models/held/infer", held_body()).status == 503
            second.socket.close()
            time.sleep(0.3)  # it would see that now

        figured.hold_up("held", base, be_refused)
        figured.hold_up("impatient", base, lambda _: time.sleep(0.3))
        time.sleep(0.5)  # traces and figures come after the answers
        said = figured.said()
        said["settings"] = figured.settings()
        figured.ask.close()
    return said


if __name__ == "__main__":
    DATA.write_text(json.dumps(capture(), indent=1) + "\n", encoding="utf-8")
    sys.exit(0)
