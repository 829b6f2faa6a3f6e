"""The sample models, built once per session, and their answers from plain runtimes (no server)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from numpy.typing import NDArray

from bident.client import Reply
from bident.client.infer import as_json, decode
from bident.errors import Code, ServeError
from bident.model.proto import pb
from bident.zoo import RECIPES, resnet18, yolov8n
from bident.zoo.recipe import Tensors
from bident.zoo.reference import run_onnx
from tests.unit.zoo.plain_models import run_ensemble, run_python


def unreachable(*_arguments: object, **_options: object) -> None:
    raise ServeError(Code.UNAVAILABLE, "no network in this test")


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every recipe of `--all`, built. The two that may be synthetic are, whatever this machine can reach."""
    target = tmp_path_factory.mktemp("zoo") / "model_repository"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resnet18, "fetch", unreachable)
        patch.setattr(yolov8n, "_export", unreachable)
        for recipe in RECIPES.values():
            if recipe.in_all:
                recipe.build(target)
    return target


def read_config(folder: Path) -> Any:
    return text_format.Parse((folder / "config.pbtxt").read_text(encoding="utf-8"), pb.ModelConfig())


def plain_answer(folder: Path, inputs: Tensors) -> dict[str, NDArray[Any]]:
    """What a v2 server has to answer, computed by the runtime alone and put in the config's shapes."""
    config = read_config(folder)
    if config.backend == "python":
        return run_python(folder, config, inputs)
    if config.platform == "ensemble":
        return run_ensemble(folder, config, inputs, plain_answer, lambda member: read_config(member).max_batch_size > 0)
    if config.backend == "fil":
        raw = {"output__0": _classes(folder / "1" / "xgboost.json", inputs["input__0"])}
    else:
        raw = run_onnx(folder / "1" / "model.onnx", inputs)
    answers = {}
    for declared in config.output:
        values = raw[declared.name]
        if isinstance(values, list):  # ZipMap: one dictionary a row
            values = np.array([[row[key] for key in sorted(row)] for row in values], np.float32)
        dims = [len(values), *declared.dims]
        answers[declared.name] = values.reshape(dims)
    return answers


def _classes(model: Path, rows: NDArray[Any]) -> NDArray[Any]:
    import xgboost

    probabilities = xgboost.Booster(model_file=model).inplace_predict(rows)
    return (probabilities >= 0.5).astype(np.float32).reshape(-1, 1)


@pytest.fixture
def plain() -> Callable[[Path, Tensors], dict[str, NDArray[Any]]]:
    return plain_answer


HEADER_LENGTH = "Inference-Header-Content-Length"


def read_request(headers: HTTPMessage, body: bytes) -> dict[str, NDArray[Any]]:
    """The input tensors of a request: they are written like the outputs of an answer."""
    length = int(headers.get(HEADER_LENGTH, len(body)))
    described = json.loads(body[:length])
    turned = json.dumps({"outputs": described["inputs"]}).encode()
    headers.replace_header(HEADER_LENGTH, str(len(turned)))
    return decode(Reply(200, headers, turned + body[length:]))[1]


class FakeServer:
    """A v2 server of the standard library: it answers infer requests with ``plain_answer``.

    ``alter`` may change an answer on its way out, ``missing`` names models it denies to have,
    ``requests`` records which model was asked, and whether with binary data.
    """

    def __init__(self, repository: Path) -> None:
        self.alter: Callable[[str, dict[str, NDArray[Any]]], dict[str, NDArray[Any]]] = lambda model, answer: answer
        self.missing: set[str] = set()
        self.requests: list[tuple[str, bool]] = []
        fake = self

        class Door(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.answer(200, b"")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                model = self.path.split("/")[3]
                fake.requests.append((model, b"binary_data_size" in body))
                if model in fake.missing:
                    self.answer(404, b'{"error": "Request for unknown model: it is not found"}')
                    return
                answer = fake.alter(model, plain_answer(repository / model, read_request(self.headers, body)))
                self.answer(200, json.dumps({"outputs": as_json(answer)["inputs"]}).encode())

            def answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Door)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server(repository: Path) -> Iterator[FakeServer]:
    fake = FakeServer(repository)
    yield fake
    fake.close()


@pytest.fixture
def config_of() -> Callable[[Path], Any]:
    return read_config
