"""KServe's own Python clients, REST and gRPC, from an environment of their own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bug_models import Shared

from tests.shell import made

# Installing takes a minute or two.
pytestmark = pytest.mark.timeout(900)

ELEMENTS: dict[str, list[Any]] = {
    "fp32": ["FP32", [1.5, -2]],
    "int64": ["INT64", [-(2**63), 7]],
    "bool": ["BOOL", [True, False]],
    "bytes": ["BYTES", ["", "ф€"]],
}


@pytest.fixture(scope="module")
def answers(shared: Shared) -> dict[str, Any]:
    """What both clients were answered; ``.venvs/kserve`` is made if it is not there or its packages have changed."""
    python = made("kserve") / "bin" / "python"
    script = Path(__file__).with_name("kserve_client.py")
    ports = [str(shared.server.port), str(shared.server.grpc_port)]
    done = subprocess.run([python, script, *ports], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_health(answers: dict[str, Any]) -> None:
    assert [answers["grpc"][what] for what in ("live", "ready", "model ready")] == [True, True, True]
    assert answers["grpc"]["unknown model ready"] is False
    assert answers["rest"]["model ready"] is True


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("model", ELEMENTS)
@pytest.mark.parametrize("client", ["grpc", "rest"])
def test_tensors_come_back(answers: dict[str, Any], client: str, model: str, binary: bool) -> None:
    assert answers[client][f"{model}-{binary}"] == [f"{model}-{binary}", *ELEMENTS[model]]


def test_errors(answers: dict[str, Any]) -> None:
    for client, status in (("grpc", "INVALID_ARGUMENT"), ("rest", 400)):
        code, text = answers[client]["unknown model"]
        assert code == status
        assert "Request for unknown model: 'nobody' is not found" in text
