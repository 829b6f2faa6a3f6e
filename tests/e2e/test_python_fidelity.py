"""Python models as a real Triton 2.51 serves them: asked the same, both answer the same.

The other answers in ``data/python_answers.json`` are the real server's, taken down once: CI has none.
Where Bident's differ on purpose, ``DIFFERENT`` says what they are and ``docs/differences.md`` why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import Asker
from model_folders import parameters
from python_exchanges import ANSWERS, REQUESTS, output, scripted, told
from python_repository import write_compared
from serving import TensorServer

KEPT: dict[str, dict[str, Any]] = json.loads(ANSWERS.read_text(encoding="utf-8"))


def _script(*outputs: tuple[str, str, list[int], list[Any]], **more: Any) -> dict[str, Any]:
    """The answer of the model ``script``."""
    described = [dict(zip(("name", "datatype", "shape", "data"), output, strict=True)) for output in outputs]
    return {"status": 200, "json": {"model_name": "script", "model_version": "1", **more, "outputs": described}}


def _answer(value: Any, **more: Any) -> dict[str, Any]:
    return _script(("ANSWER", "BYTES", [1], [json.dumps(value)]), **more)


def _error(status: int, message: str) -> dict[str, Any]:
    return {"status": status, "json": {"error": message}}


NO_LATER_VERSION = {
    "response parameters": _answer(1, parameters={"i": 1, "b": False, "s": "é"}),
    "response parameters: float": _answer(
        ["TritonModelException", "Expect parameters values to have type bool/int/str, found type <class 'float'>"]
    ),
    "response parameters: key": _answer(
        ["TritonModelException", "Expect parameters keys to have type str, found type <class 'int'>"]
    ),
    "call: response parameters": _answer({"a": 1}),
    "call: an error of its own": _answer([True, "no", True, 0]),  # 2.51 makes every code INTERNAL on the way
}
"""What a Triton later than 2.51 can do."""

DIFFERENT = {
    **NO_LATER_VERSION,
    "error of text": _error(
        500,
        "Failed to process the request(s) for model 'script_0', message: TypeError: InferenceResponse takes an error",
    ),
    "output: float64 for FP32": _script(("F", "FP32", [2], [1.5, 2.0])),
    "output: int64 for INT8": _script(("I", "INT8", [2], [1, -2])),
    "output: too large for INT8": _error(
        500, "output 'I' of model 'script' has datatype INT64, but its config declares INT8"
    ),
    "output: int64 for FP32": _error(
        500, "output 'F' of model 'script' has datatype INT64, but its config declares FP32"
    ),
    "output: too long": _error(500, "output 'F' of model 'script' has shape [3], but its config declares [2]"),
    "output: of more dimensions": _script(("F", "FP32", [2], [1.0, 2.0])),
    "output: fixed-width strings": _script(("S", "BYTES", [2], ["é", "abc"])),
    "output: missing": _error(500, "model 'script' produced no output 'F', which the request asks for"),
    "call: an output not produced": _answer("error: model 'peer' produced no output 'F', which the request asks for"),
    "rows: none": _error(400, "[request id: <id_unknown>] inference request batch-size must be >= 1 for 'rows'"),
}


@pytest.fixture(scope="module", params=["process", "thread"])
def compared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, plugins: Path
) -> Iterator[TensorServer]:
    base = tmp_path_factory.mktemp("compared")
    write_compared(base / "REPOSITORY")
    for config in (base / "REPOSITORY").glob("*/config.pbtxt"):
        config.write_text(config.read_text(encoding="utf-8") + parameters(LANE=request.param), encoding="utf-8")
    flags = ("--model-control-mode=explicit", "--load-model=*")
    with TensorServer(base / "REPOSITORY", base / "server.log", *flags, plugins=plugins) as server:
        yield server


@pytest.fixture(scope="module")
def client(compared: TensorServer) -> Iterator[Asker]:
    made = Asker(compared.port)
    yield made
    made.close()


def agrees(expected: Any, found: Any) -> bool:
    """Whether ``found`` says what ``expected`` does; an error may say more, a number be that of an FP32."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(agrees(expected[key], found[key]) for key in expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(agrees, expected, found))
    if isinstance(expected, str) and isinstance(found, str):
        return found == expected or (len(expected) > 20 and found.startswith(expected.rstrip(" .")))
    if isinstance(expected, float):
        return bool(np.float32(expected) == np.float32(found))
    return type(expected) is type(found) and bool(expected == found)


def readable(said: dict[str, Any], folder: str) -> dict[str, Any]:
    """``said`` with what script models answer as JSON read, and the repository's folder forgotten."""
    text = json.dumps(said, ensure_ascii=False).replace(folder, "REPOSITORY")
    document: dict[str, Any] = json.loads(text)
    for given in (document["json"] or {}).get("outputs", ()):
        if given["name"] == "ANSWER" and "data" in given:
            given["data"] = [json.loads(element) for element in given["data"]]
    return document


@pytest.mark.parametrize("name", REQUESTS)
def test_the_answer_is_tritons(client: Asker, compared: TensorServer, name: str) -> None:
    folder = str(compared.log.parent / "REPOSITORY")
    found = readable(told(REQUESTS[name].send(client)), folder)
    expected = readable(DIFFERENT.get(name, KEPT[name]), folder)
    assert agrees(expected, found), f"expected {expected}, found {found}"


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_said_to_differ_does(name: str) -> None:
    assert not agrees(readable(KEPT[name], "/"), readable(DIFFERENT[name], "/"))


def test_answers_are_kept_for_every_request_and_no_other() -> None:
    assert KEPT.keys() == REQUESTS.keys()


SENDER = "sender = request.get_response_sender(); result = [None]; sender.send("
FINAL = "pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"

UNANSWERED = {
    "None for all": ("result = None", 500, "Expected a list in the execute return, found type '<class 'NoneType'>'."),
    "None for one": (
        "result = [None]",
        500,
        "Expected an 'InferenceResponse' object in the execute function return list",
    ),
    "nothing but the end": (f"{SENDER}flags={FINAL})", 500, "Non-decoupled model cannot send complete final before"),
    "no end": (f"{SENDER}said(1))", 200, ""),
    "more after the end": (f"{SENDER}said(1), {FINAL}); sender.send(said(2))", 200, ""),
    "once more": (
        "request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE); result = [None]",
        501,
        "model 'script' wants a request once more",
    ),
    "bytes that are no text": (
        output("S", "[b'\\xff\\xfe']", "np.object_"),
        400,
        "output 'S' holds bytes that are not UTF-8",
    ),
}
"""Code of an ordinary model whose clients wait for ever on a real Triton 2.51, and those who come after them."""


@pytest.mark.parametrize("name", UNANSWERED)
def test_what_triton_never_answers_is_answered(client: Asker, name: str) -> None:
    code, status, fragment = UNANSWERED[name]
    answer = scripted(code).send(client)
    assert answer.status == status, answer.body
    assert fragment in answer.body.decode()
    assert scripted("answer = 1").send(client).data("ANSWER") == ["1"]
