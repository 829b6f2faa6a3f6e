"""docs/how-to/security.md: the servers are started as it says, and its questions get the answers that it shows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from model_folders import write_model
from pages import Reader, Section, sections, typed

from benchmarks.servers import bident_command

PAGE = sections("security.md")
KEYS, TLS, RESTRICTED, HEADERS = (PAGE[heading] for heading in ("API", "TLS", "Restricted", "Headers"))
ECHO = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        told = [np.array([request.parameters()], object) for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", one)]) for one in told]
"""


def _split(section: Section) -> tuple[str, list[str]]:
    """What starts the server of ``section`` (what is typed before it is typed here too), and the other commands."""
    blocks = section.of("sh")
    start = next(block for block in blocks if "bident serve" in block)
    return start, [line for block in blocks if block != start for line in _lines(block)]


def _lines(block: str) -> list[str]:
    return block.replace("\\\n", "").strip().splitlines()


def _reader(folder: Path, iris: Path, *before: str) -> Reader:
    reader = Reader(folder, iris)
    for line in before:
        typed(line, folder)
    return reader


def test_with_api_keys(tmp_path: Path, iris: Path) -> None:
    block, (curl, ls) = _split(KEYS)
    *before, start = _lines(block)
    assert before[0] == "umask 077"
    reader = _reader(tmp_path, iris, "; ".join(before))
    assert (tmp_path / "api_keys").stat().st_mode & 0o077 == 0
    with reader.starts(start):
        assert json.loads(reader.types(curl))["name"] == "iris_sklearn"
        assert "iris_sklearn" in reader.types(ls)
        (program,) = KEYS.of("python")
        assert reader.runs(program) == KEYS.after("import").strip()
        nobody = reader.types("curl --no-fail-with-body http://127.0.0.1:8000/v2/models/iris_sklearn")
        assert nobody == KEYS.printed.strip()
        reader.types(
            "curl http://127.0.0.1:8000/v2/health/ready && curl http://127.0.0.1:8000/v2/models/iris_sklearn/ready"
        )


def test_with_tls(tmp_path: Path, iris: Path) -> None:
    start, (make, *questions) = _split(TLS)
    reader = _reader(tmp_path, iris, make)
    with reader.starts(start):
        assert all("iris_sklearn" in reader.types(question) for question in questions)
        (program,) = TLS.of("python")
        assert reader.runs(program) == TLS.after("import").strip()


def test_with_restricted_apis(tmp_path: Path, iris: Path) -> None:
    start, (load, ls) = _split(RESTRICTED)
    reader = _reader(tmp_path, iris)
    with reader.starts(start):
        reader.types(load)
        assert "iris_sklearn" in reader.types(ls)
        (program,) = RESTRICTED.of("python")
        assert reader.runs(program) == RESTRICTED.after("import").strip()
        refused = reader.types("! bident ls --url http://127.0.0.1:8000 2>&1")
        assert "expecting header 'admin'; commands send it with bident --header" in refused


def test_with_forwarded_headers(tmp_path: Path) -> None:
    (start,) = HEADERS.of("sh")
    reader = Reader(tmp_path)
    config = 'backend: "python"\ninput { name: "X" data_type: TYPE_STRING dims: [ 1 ] }\n'
    write_model(
        reader.models, "echo", config + 'output { name: "Y" data_type: TYPE_STRING dims: [ 1 ] }\n', model_py=ECHO
    )
    with reader.starts(start):
        ask = "curl -H 'X-User: ada' -H 'X-Other: no' http://127.0.0.1:8000/v2/models/echo/generate -d '{\"X\": \"x\"}'"
        told = json.loads(json.loads(reader.types(ask))["Y"])
        assert {name.lower(): value for name, value in told.items()} == {"x-user": "ada"}


@pytest.mark.parametrize("flag", ["--http-address", "--grpc-address", "--metrics-address"])
def test_nothing_is_open_by_mistake(tmp_path: Path, flag: str) -> None:
    ports = [f"--{door}-port=0" for door in ("http", "grpc", "metrics")]
    started = subprocess.run(
        [bident_command(), "serve", "tensor", f"--model-repository={tmp_path}", *ports, f"{flag}=0.0.0.0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert started.returncode == 1
    assert f"{flag}=0.0.0.0" in started.stderr
    assert "--api-key-file" in started.stderr
