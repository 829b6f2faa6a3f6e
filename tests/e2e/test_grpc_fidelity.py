"""gRPC as a real Triton 2.51 speaks it: asked the same, both answer the same.

The other answers in ``data/grpc_answers.json`` are the real server's, taken down once: CI has none.
Where Bident's differ on purpose, ``DIFFERENT`` says what they are and ``docs/differences.md`` why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_exchanges import ANSWERS, FLAGS, REQUESTS
from python_repository import write_compared
from serving import TensorServer
from test_python_fidelity import agrees

KEPT: dict[str, dict[str, Any]] = json.loads(ANSWERS.read_text(encoding="utf-8"))


def _refused(details: str, status: str = "INVALID_ARGUMENT") -> dict[str, Any]:
    return {"answers": [], "status": status, "details": details}


def _failed(error: str, **names: str) -> dict[str, Any]:
    """An answer in a stream that is an error: it says of which request, and that it is the last."""
    last = {"triton_final_response": {"bool_param": True}}
    return {"error_message": error, "infer_response": {**names, "parameters": last}}


_UNKNOWN = _refused("Request for unknown model: 'nobody' is not found")
_NO_MESSAGE = _refused("Unable to parse request: its 3 bytes are not the protobuf message inference.ModelInferRequest")
_NO_INPUTS = (
    "[request id: x] expected 1 inputs but got 0 inputs for model 'streams'. Got input(s) [], but missing required "
    "input(s) ['CODE']. Please provide all required input(s)."
)
_VERSION = "failed to get model version from specified version string"

ANOTHER_RELEASE = dict.fromkeys(("unknown model", "ModelMetadata nobody ''", "ModelConfig nobody ''"), _UNKNOWN)
"""What a Triton later than 2.51 answers like Bident."""

OTHER_WORDS = {
    "datatype that is none": _refused("invalid datatype for input 'IN_NOPE': got 'NOPE'"),
    "input twice": _refused("input 'IN_FP32' already exists in request"),
    "raw: BYTES, too few": _refused("expected 2 string elements for inference input 'IN_BYTES'"),
    "raw: too short": _refused("input byte size mismatch for input 'IN_FP32'. Expected 8, got 7"),
    "shape of -1": _refused("All input dimensions should be specified for input 'IN_FP32' for model 'types', got [-1]"),
    "typed: BYTES, too few": _refused("expected 2 string elements for inference input 'IN_BYTES', got 1"),
    "typed: none": _refused("input byte size mismatch for input 'IN_FP32' for model 'types'. Expected 8, got 0"),
    "typed: too few": _refused("input byte size mismatch for input 'IN_FP32' for model 'types'. Expected 8, got 4"),
    "not a method": _refused("Method not found: this server has no method", "UNIMPLEMENTED"),
}
"""The same status, and the fragment that clients look for, without the id of a request that has none."""

DIFFERENT = {
    **ANOTHER_RELEASE,
    **OTHER_WORDS,
    "not a message": _NO_MESSAGE,
    "stream: not a message": _NO_MESSAGE,
    "raw: one too many": _refused("expected 1 raw input contents but got 2 for model 'types'"),
    "typed: too large": _refused("Unable to parse 'data': a value of input 'IN_UINT8' is out of range for UINT8"),
    "parameter timeout: int64_param -4": _refused("invalid value for 'timeout', expected value >= 0"),
    "version '1x'": _refused(f"{_VERSION} '1x' (details: stol)"),
    "version ' 1'": _refused(f"{_VERSION} ' 1' (details: stol)"),
    "stream: no inputs": {
        "answers": [_failed(_NO_INPUTS, id="x", model_name="streams")],
        "status": "OK",
        "details": "",
    },
    "stream: version that is none": {
        "answers": [_failed(f"{_VERSION} 'q' (details: stol)", id="x", model_name="script", model_version="q")],
        "status": "OK",
        "details": "",
    },
    "stream: unknown model": {
        **KEPT["stream: unknown model"],
        "answers": [
            _failed(_UNKNOWN["details"], id="a", model_name="nobody"),
            *KEPT["stream: unknown model"]["answers"][1:],
        ],
    },
    "stream: unknown model, error as status": _UNKNOWN,
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Iterator[TensorServer]:
    base = tmp_path_factory.mktemp("compared_grpc")
    write_compared(base / "REPOSITORY")
    flags = (*FLAGS, "--allow-client-shm=true")
    with TensorServer(base / "REPOSITORY", base / "server.log", *flags, plugins=plugins) as server:
        yield server


@pytest.fixture(scope="module")
def channel(compared: TensorServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{compared.grpc_port}") as made:
        yield made


@pytest.mark.parametrize("name", REQUESTS)
def test_the_answer_is_tritons(channel: grpc.Channel, compared: TensorServer, name: str) -> None:
    folder = str(compared.log.parent / "REPOSITORY")
    found = json.loads(json.dumps(REQUESTS[name].send(channel)).replace(folder, "REPOSITORY"))
    expected = DIFFERENT.get(name, KEPT[name])
    assert agrees(expected, found), f"expected {expected}, found {found}"


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_said_to_differ_does(name: str) -> None:
    assert not agrees(KEPT[name], DIFFERENT[name])


def test_answers_are_kept_for_every_request_and_no_other() -> None:
    assert KEPT.keys() == REQUESTS.keys()
