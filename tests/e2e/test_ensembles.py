"""Ensembles, as clients see them: the same answers as a real Triton's, and the figures behind them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from asking import Answer, Asker
from ensemble_repository import answers, questions, step, write_ensemble, write_repository
from model_folders import onnx_mark, write_model
from serving import Launch, TensorServer, eventually
from tritonclient import http

QUESTIONS = {name: (path, body) for path, name, body in questions()}
RECORDED = answers()
SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")
EXPLICIT = "--model-control-mode=explicit"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Iterator[TensorServer]:
    """All of ``ensemble_repository``, and an ensemble of three kinds of backends."""
    base = tmp_path_factory.mktemp("ensembles")
    repository = base / "repository"
    write_repository(repository)
    write_model(repository, "marked", 'backend: "onnxruntime"\nmax_batch_size: 8\n', model_onnx=onnx_mark(100))
    same = (
        "input { name: 'X' data_type: TYPE_FP32 dims: [ -1 ] } output { name: 'Y' data_type: TYPE_FP32 dims: [ -1 ] }"
    )
    write_model(repository, "same", f'backend: "identity"\nmax_batch_size: 8\n{same}')
    steps = (step("add", "X=X", "Y=t"), step("marked", "X=t", "first=u"), step("same", "X=u", "Y=Y"))
    write_ensemble(repository, "mixed", 8, "X:FP32:2", "Y:FP32:2", *steps)
    with TensorServer(repository, base / "server.log", plugins=plugins) as started:
        yield started


@pytest.fixture
def ask(server: TensorServer) -> Iterator[Asker]:
    before = len(server.log_text)
    client = Asker(server.port)
    yield client
    client.close()
    server.check_alive()
    assert "Traceback" not in server.log_text[before:]


# The same answers as a real Triton's


def outputs(document: dict[str, Any]) -> dict[str, Any]:
    """What a response says, less what Triton adds to every answer of an ensemble, whether there is a sequence or not.

    Triton gives the outputs in no particular order.
    """
    said = {key: value for key, value in document.items() if key not in ("parameters", "outputs")}
    said["outputs"] = {output["name"]: output for output in document["outputs"]}
    given = document.get("parameters", {})
    return {**said, "parameters": {} if given.get("sequence_id", 0) == 0 else given}


def events(text: str) -> list[dict[str, Any]]:
    documents = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]
    return [{key: value for key, value in document.items() if key not in SEQUENCE} for document in documents]


def first_words(message: str) -> str:
    """The part of Triton's message that clients match on."""
    return message.split(" NOTE: ", maxsplit=1)[0].rstrip(" .")


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_answer_is_the_one_that_a_real_triton_gave(ask: Asker, name: str) -> None:
    path, body = QUESTIONS[name]
    recorded = RECORDED[name]
    answer = ask.post(f"/v2/models/{path}", body)
    assert answer.status == recorded["status"], answer.body
    if answer.status != 200:
        assert first_words(json.loads(recorded["body"])["error"]) in answer.error
    elif path.endswith("generate_stream"):
        assert events(answer.body.decode()) == events(recorded["body"])
    else:
        assert outputs(answer.json) == outputs(json.loads(recorded["body"]))


def test_every_question_was_put_to_the_real_one() -> None:
    assert RECORDED.keys() == QUESTIONS.keys()


# tritonclient


def test_an_ensemble_of_python_onnx_and_identity_answers_tritonclient(server: TensorServer) -> None:
    client = http.InferenceServerClient(f"127.0.0.1:{server.port}")
    given = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    tensor = http.InferInput("X", given.shape, "FP32")
    tensor.set_data_from_numpy(given)

    result = client.infer("mixed", [tensor], request_id="mine")

    assert result.as_numpy("Y").tolist() == (given + 101).tolist()
    assert result.get_response()["id"] == "mine"
    assert client.get_model_metadata("mixed")["platform"] == "ensemble"
    config = client.get_model_config("mixed")
    assert config["ensemble_scheduling"]["step"][1]["model_name"] == "marked"
    assert config["model_transaction_policy"] == {"decoupled": False}
    assert client.get_model_config("streams")["model_transaction_policy"] == {"decoupled": True}
    assert client.is_model_ready("mixed")
    client.close()


# Figures


def test_statistics_and_metrics_of_the_whole_and_of_the_members(server: TensorServer, ask: Asker) -> None:
    def figures(model: str) -> dict[str, Any]:
        (row,) = ask.get(f"/v2/models/{model}/stats").json["model_stats"]
        found: dict[str, Any] = row
        return found

    before = {model: figures(model) for model in ("chain", "add")}
    body = {"inputs": [{"name": "X", "shape": [2, 1], "datatype": "FP32", "data": [1, 2]}]}
    assert ask.post("/v2/models/chain/infer", body).data() == [4, 5]
    whole, member = figures("chain"), figures("add")

    assert whole["inference_count"] - before["chain"]["inference_count"] == 2
    assert whole["execution_count"] - before["chain"]["execution_count"] == 1
    assert member["inference_count"] - before["add"]["inference_count"] == 6
    assert member["execution_count"] - before["add"]["execution_count"] == 3
    for part in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        now, then = whole["inference_stats"][part], before["chain"]["inference_stats"][part]
        assert now["count"] - then["count"] == 1
        assert now["ns"] > then["ns"]
    page = httpx.get(f"http://127.0.0.1:{server.metrics_port}/metrics", trust_env=False).text
    assert f'nv_inference_count{{model="chain",version="1"}} {whole["inference_count"]}\n' in page
    assert 'nv_inference_pending_request_count{model="chain",version="1"} 0\n' in page


# Members come and go


def write_marks(repository: Path) -> None:
    for name, mark in (("first", 10), ("second", 100)):
        write_mark(repository, name, mark)
    steps = (step("first", "X=X", "first=t"), step("second", "X=t", "first=Y"))
    write_ensemble(repository, "both", 8, "X:FP32:2", "Y:FP32:2", *steps)


def write_mark(repository: Path, name: str, mark: float) -> None:
    write_model(repository, name, 'backend: "onnxruntime"\nmax_batch_size: 8\n', new_onnx=onnx_mark(mark))
    folder = repository / name / "1"
    (folder / "new.onnx").replace(folder / "model.onnx")


def ask_both(ask: Asker) -> Answer:
    return ask.infer("both", {"name": "X", "shape": [1, 2], "datatype": "FP32", "data": [0, 0]})


def test_loading_brings_members_and_unloading_takes_along_what_nobody_else_needs(
    launch: Launch, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    write_marks(repository)
    ask = Asker(launch(repository, EXPLICIT, "--load-model=second").port)

    assert ask.load("both").status == 200
    assert ask_both(ask).data() == [110, 110]

    ask.unload("first")
    eventually(lambda: ask.index()["first"][0]["state"] == "UNAVAILABLE", "first is unloaded")
    ask_both(ask).refused("ensemble 'both' is not ready: step 0 needs model 'first'", status=503)
    assert ask.get("/v2/models/both/ready").status == 400
    assert ask.get("/v2/health/ready").status == 200
    assert ask.index()["both"][0]["state"] == "UNAVAILABLE"

    write_mark(repository, "first", 20)
    assert ask.load("first").status == 200
    assert ask_both(ask).data() == [120, 120]

    ask.unload("first")
    assert ask.load("both").status == 200
    assert ask_both(ask).data() == [120, 120]

    body = {"parameters": {"unload_dependents": True}}
    assert ask.post("/v2/repository/models/both/unload", body).status == 200
    eventually(lambda: ask.index()["first"][0].get("reason") == "unloaded", "first went along")
    assert ask.index()["second"][0]["state"] == "READY"


def test_the_ensemble_answers_through_every_reload_of_its_members(launch: Launch, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    write_marks(repository)
    server = launch(repository, EXPLICIT, "--load-model=both")
    ask = Asker(server.port)
    seen: list[tuple[int, Any]] = []
    stop = threading.Event()

    def traffic() -> None:
        own = Asker(server.port)
        while not stop.is_set():
            answer = ask_both(own)
            seen.append((answer.status, answer.data()[0] if answer.status == 200 else answer.body))
        own.close()

    threads = [threading.Thread(target=traffic) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: seen, "an answer")
        for mark in (20, 30, 40):
            write_mark(repository, "first", mark)
            assert ask.load("first").status == 200
            eventually(lambda mark=mark: (200, 100 + mark) in seen, "the new file answers")
        (repository / "first" / "1" / "model.onnx").write_bytes(b"broken")
        assert ask.load("first").status == 400
        count = len(seen)
        eventually(lambda: len(seen) > count + 20, "the old file goes on")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert {status for status, _ in seen} == {200}
    assert {value for _, value in seen} == {110, 120, 130, 140}
    assert ask.index()["both"][0]["state"] == "READY"
