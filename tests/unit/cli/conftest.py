"""A small v2 server in a thread: enough of the protocol for the commands, and a record of what they sent."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from bident.cli import background, main, screen
from bident.local.record import STATE_DIR, Record
from bident.wire.datatypes import BYTES, DATATYPES, from_numpy
from bident.wire.infer import element_count
from bident.wire.tensor import pack, unpack
from tests.unit.cli.fake_ollama import FakeOllama, fake_ollama
from tests.unit.cli.stand_in import SERVER

JSON_SIZE = "Inference-Header-Content-Length"


@dataclass
class FakeModel:
    """``answer`` gets the input tensors by name and returns the outputs; ``config`` has Triton's JSON names."""

    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    config: dict[str, Any]
    answer: Callable[[dict[str, Any]], dict[str, Any]]
    state: str = "READY"
    reason: str = ""


@dataclass
class FakeServer:
    models: dict[str, FakeModel] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    stats: list[dict[str, Any]] = field(default_factory=list)
    metrics: str = ""
    ready: bool = True
    refusal: tuple[int, str] | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    """Of the last request, names in lower case."""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def answer(self, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        self.paths.append(path)
        self.headers = {name.lower(): value for name, value in headers.items()}
        if path == "/v2/health/live":
            return 200, {}, b""
        if path == "/v2/health/ready":
            return (200 if self.ready else 400), {}, b""
        if path == "/metrics":
            return 200, {}, self.metrics.encode()
        if self.refusal:
            return self.refusal[0], {}, json.dumps({"error": self.refusal[1]}).encode()
        if path == "/v2/models/stats":
            return 200, {}, json.dumps({"model_stats": self.stats}).encode()
        if path == "/v2/repository/index":
            return 200, {}, json.dumps([self._entry(name) for name in self.models]).encode()
        if path.startswith("/v2/repository/models/"):
            return 200, {}, b""
        return self._model(path, headers, body)

    def _entry(self, name: str) -> dict[str, Any]:
        model = self.models[name]
        if not model.state:
            return {"name": name}
        return {"name": name, "version": "1", "state": model.state, "reason": model.reason}

    def _model(self, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        name, _, what = path.removeprefix("/v2/models/").partition("/")
        model = self.models.get(name)
        if model is None or model.state != "READY":
            return 404, {}, json.dumps({"error": f"Request for unknown model: '{name}' is not found"}).encode()
        if what == "generate_stream":
            self.asked.append(json.loads(body))
            answer = "".join(f"data: {json.dumps(event)}\n\n" for event in self.events)
            return 200, {"Content-Type": "text/event-stream; charset=utf-8"}, answer.encode()
        if what == "infer":
            return self._infer(name, model, headers, body)
        if what == "config":
            return 200, {}, json.dumps({"name": name, **model.config}).encode()
        metadata = {"name": name, "versions": ["1"], "platform": "x", "inputs": model.inputs, "outputs": model.outputs}
        return 200, {}, json.dumps(metadata).encode()

    def _infer(self, name: str, model: FakeModel, headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        size = int(headers.get(JSON_SIZE, len(body)))
        request = json.loads(body[:size])
        tensors = read_tensors(request, body[size:])
        self.asked.append({"request": request, "tensors": tensors, "path_model": name})
        wanted = {output["name"]: output.get("parameters", {}) for output in request.get("outputs", [])}
        described, parts = [], []
        for output, value in model.answer(tensors).items():
            array = (
                np.array(classes(value, wanted[output]["classification"]))
                if ("classification" in wanted.get(output, {}))
                else np.asarray(value)
            )
            entry, part = write_tensor(output, array, bool(wanted.get(output, {}).get("binary_data")))
            described.append(entry)
            parts.append(part)
        head = json.dumps({"model_name": name, "model_version": "1", "outputs": described}).encode()
        return 200, {JSON_SIZE: str(len(head))} if any(parts) else {}, head + b"".join(parts)


def read_tensors(request: dict[str, Any], binary: bytes) -> dict[str, Any]:
    tensors = {}
    for entry in request["inputs"]:
        datatype, shape = DATATYPES[entry["datatype"]], tuple(entry["shape"])
        size = entry.get("parameters", {}).get("binary_data_size")
        if size is None:
            tensors[entry["name"]] = np.array(entry["data"], datatype.numpy).reshape(shape)
        else:
            tensors[entry["name"]] = unpack("x", datatype, shape, element_count(shape), binary[:size])
            binary = binary[size:]
    assert not binary
    return tensors


def classes(values: Any, count: int) -> list[list[str]]:
    """The classification extension over the last axis, with labels ``label N``."""
    rows = []
    for row in np.asarray(values):
        best = np.argsort(-row, kind="stable")[:count]
        rows.append([f"{row[index]:.6f}:{index}:label {index}" for index in best])
    return rows


def write_tensor(name: str, array: Any, binary: bool) -> tuple[dict[str, Any], bytes]:
    datatype = from_numpy(array.dtype)
    assert datatype is not None
    entry: dict[str, Any] = {"name": name, "datatype": datatype.name, "shape": list(array.shape)}
    if not binary:
        return {**entry, "data": array.reshape(-1).tolist()}, b""
    part = bytes(pack(array.astype(object) if datatype is BYTES else array, datatype))
    return {**entry, "parameters": {"binary_data_size": len(part)}}, part


def tensor(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


def iris() -> FakeModel:
    """A classifier of four numbers whose score of class N is N plus the sum."""
    return FakeModel(
        inputs=[tensor("X", "FP32", -1, 4)],
        outputs=[tensor("probabilities", "FP32", -1, 3)],
        config={"backend": "onnxruntime", "max_batch_size": 8, "dynamic_batching": {}},
        answer=lambda tensors: {
            "probabilities": np.arange(3, dtype=np.float32) + tensors["X"].sum(axis=1, keepdims=True)
        },
    )


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer({"iris": iris()})

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply()

        def do_POST(self) -> None:
            self.reply()

        def reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, answer = fake.answer(self.path, self.headers, body)
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            pass

    door = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    door.daemon_threads = True
    fake.url = f"http://127.0.0.1:{door.server_port}"
    thread = threading.Thread(target=door.serve_forever, args=(0.01,))
    thread.start()
    yield fake
    door.shutdown()
    door.server_close()
    thread.join()


@dataclass
class Result:
    code: int
    out: str
    err: str


Bident = Callable[..., Result]


@pytest.fixture
def bident(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Bident:
    """Runs one command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path_factory.mktemp("cwd"))
    for variable in [name for name in os.environ if name.startswith(("BIDENT_", "OLLAMA_"))]:
        monkeypatch.delenv(variable)
    # Whatever else runs on this machine, a test meets only the servers that it names.
    monkeypatch.setattr("bident.cli.target.DEFAULT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("bident.cli.text_server.DEFAULT_URL", "http://127.0.0.1:9")

    def run(*words: object) -> Result:
        screen.console.cache_clear()
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main([str(word) for word in words])
        captured = capsys.readouterr()
        screen.console.cache_clear()
        code = caught.value.code
        return Result(code if isinstance(code, int) else int(code is not None), captured.out, captured.err)

    return run


@pytest.fixture
def up(bident: Bident, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A folder with a repository, and what to call to start the stand-in there; it does not outlive the test."""

    def command(flags: Sequence[str]) -> list[str]:
        return [sys.executable, "-c", SERVER, *flags]

    monkeypatch.setattr(background, "serve_command", command)
    monkeypatch.setenv("BIDENT_GRPC_PORT", "0")
    monkeypatch.setenv("BIDENT_TEXT_PORT", "0")
    Path("model_repository").mkdir()
    yield ["up", "--http-port=0", "--metrics-port=0"]
    record = Record.read(Path(STATE_DIR))
    if record and record.running():
        psutil.Process(record.pid).kill()


@pytest.fixture
def ollama() -> Iterator[FakeOllama]:
    with fake_ollama() as fake:
        yield fake
