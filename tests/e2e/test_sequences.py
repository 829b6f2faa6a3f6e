"""Sequence batching over HTTP: as a real Triton 2.51 does it, and what it lacks or does wrong.

The answers in ``data/sequence_answers.json`` are the real server's, taken down once: CI has none.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from asking import Answer, Asker
from model_folders import declared, parameters, write_model
from onnx import TensorProto, helper
from python_repository import DECOUPLED, write_python
from sequence_exchanges import ANSWERS, REQUESTS, answers, step
from sequence_repository import NUMBERS, STEPS, correlation, sequences, write_sequences
from serving import Launch, TensorServer, eventually
from test_python_fidelity import agrees

KEPT: dict[str, dict[str, Any]] = json.loads(ANSWERS.read_text(encoding="utf-8"))
LONG = "max_sequence_idle_microseconds: 60000000\n"


def _error(message: str) -> dict[str, Any]:
    return {"status": 400, "json": {"error": message}}


DIFFERENT = {
    "a control sent by the client": _error(
        "expected 1 inputs but got 2 inputs for model 'direct': unexpected inference"
    ),
    "a negative id": _error("Unable to parse 'sequence_id': attempt to access JSON non-string as string"),
    "too large an id": _error("Unable to parse 'sequence_id': attempt to access JSON non-string as string"),
    "too long an id": _error("string correlation ID cannot be longer than 128 characters"),
}

COUNTED_OTHERWISE = {
    # A model's own error is a failure here, and ending an iterative sequence is none.
    "direct": {"inferences": 17, "success": 17, "queue": 17, "compute_infer": 17, "fail": 1},
    "again": {"fail": 0},
}


@pytest.fixture(scope="module", params=["process", "thread"])
def answered(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, plugins: Path
) -> Iterator[dict[str, Any]]:
    """What Bident answers to the requests that Triton was asked, in the same order."""
    base = tmp_path_factory.mktemp("sequences")
    write_sequences(base / "repository")
    for config in (base / "repository").glob("*/config.pbtxt"):
        config.write_text(config.read_text(encoding="utf-8") + parameters(LANE=request.param), encoding="utf-8")
    with TensorServer(base / "repository", base / "server.log", plugins=plugins) as server:
        ask = Asker(server.port)
        yield answers(ask)
        ask.close()
        assert "Traceback" not in server.log_text


def without_lane(said: dict[str, Any]) -> dict[str, Any]:
    if "parameters" in (said["json"] or {}):
        said["json"]["parameters"] = {key: value for key, value in said["json"]["parameters"].items() if key != "LANE"}
    return said


@pytest.mark.parametrize("name", REQUESTS)
def test_the_answer_is_tritons(answered: dict[str, Any], name: str) -> None:
    expected, found = DIFFERENT.get(name, KEPT[name]), without_lane(answered[name])
    assert agrees(expected, found), f"expected {expected}, found {found}"


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_said_to_differ_does(name: str) -> None:
    assert not agrees(KEPT[name], DIFFERENT[name])


@pytest.mark.parametrize("model", ["direct", "oldest", "single", "again"])
def test_the_figures_are_tritons(answered: dict[str, Any], model: str) -> None:
    assert answered["stats"][model] == KEPT["stats"][model] | COUNTED_OTHERWISE.get(model, {})


def test_answers_are_kept_for_every_request_and_no_other() -> None:
    assert KEPT.keys() == {*REQUESTS, "stats"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "repository"


def asked(server: TensorServer, *exchanges: Any) -> list[Answer]:
    """The answers to requests that are sent in this order, each when the one before it has been answered."""
    ask = Asker(server.port)
    found = [exchange.send(ask) for exchange in exchanges]
    ask.close()
    return found


def test_text_as_correlation_id(launch: Launch, repository: Path) -> None:
    """Triton 2.51 cannot hand it to a Python model that batches."""
    config = sequences(4, f"oldest {{ }}\n{LONG}{correlation('STRING')}")
    write_python(repository, "text", "sequences", config)
    server = launch(repository)
    (first, second, number) = asked(
        server, step("text", "é", 2, flags="S"), step("text", "é", 3, flags="E"), step("text", 1, 3, flags="S")
    )
    told = json.loads(second.data("TOLD")[0])
    assert told["controls"]["CORRID"] == ["object", [1, 1], ["é"]]
    assert (first.data(), second.data()) == ([2], [5])
    number.refused("takes sequence ids as BYTES", "the sequence id 1 is a number: send text")


@pytest.mark.parametrize("more", [{"LANE": "process"}, {"LANE": "thread"}, {"LANE": "process", "ASYNC": "yes"}])
def test_a_decoupled_model_streams_an_iterative_sequence(
    launch: Launch, repository: Path, more: dict[str, str]
) -> None:
    batching = f"sequence_batching {{ oldest {{ }} iterative_sequence: true {LONG} }}{parameters(**more)}"
    write_python(repository, "counts", "again", f"max_batch_size: 4\n{NUMBERS}{STEPS}{DECOUPLED}\n{batching}")
    server = launch(repository)
    ask = Asker(server.port)
    answer = ask.post("/v2/models/counts/generate_stream", {"X": 3})
    events = [json.loads(line[5:]) for line in answer.body.decode().splitlines() if line.startswith("data:")]
    assert [event["Y"] for event in events] == [3, 2, 1, 0]
    assert json.loads(events[-1]["STEPS"]) == [[1, 1], [0, 1], [0, 1], [0, 1]]
    ask.close()


def test_sequences_under_way_may_end_when_the_server_stops(launch: Launch, repository: Path) -> None:
    write_python(repository, "sums", "sequences", sequences(4, LONG))
    server = launch(repository)
    asked(server, step("sums", 1, 1, flags="S"))
    server.signal(signal.SIGTERM)
    eventually(lambda: "in-flight inferences: sums" in server.log_text, "the server waits for the sequence")
    new, more, end = asked(server, step("sums", 2, 1, flags="S"), step("sums", 1, 2), step("sums", 1, 3, flags="E"))
    new.refused("has stopped accepting new inference requests", status=503)
    assert (more.data(), end.data()) == ([3], [6])
    assert server.wait() == 0


def test_a_worker_that_dies_takes_its_sequences_along(launch: Launch, repository: Path) -> None:
    write_python(repository, "sums", "sequences", sequences(4, LONG))
    server = launch(repository)
    asked(server, step("sums", 1, 1, flags="S"))
    (worker,) = [child for child in psutil.Process(server.pid).children() if "worker" in " ".join(child.cmdline())]
    worker.kill()
    ask = Asker(server.port)
    eventually(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, "the end of the worker")
    more = eventually(lambda: _refused(step("sums", 1, 2).send(ask)), "the end of the sequence")
    assert "START flag" in more or "has ended" in more or "not healthy" in more
    fresh = eventually(lambda: _served(step("sums", 1, 5, flags="S").send(ask)), "a new sequence")
    assert fresh.data() == [5]
    ask.close()


def _refused(answer: Answer) -> str:
    return answer.error if answer.status >= 400 else ""


def _served(answer: Answer) -> Answer | None:
    return answer if answer.status == 200 else None


def test_an_ensemble_hands_the_sequence_to_its_members(launch: Launch, repository: Path) -> None:
    write_python(repository, "sums", "sequences", sequences(4, LONG))
    mapped = 'model_name: "sums" model_version: -1 input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }'
    write_model(
        repository,
        "whole",
        f'platform: "ensemble"\nmax_batch_size: 4\n{NUMBERS}ensemble_scheduling {{ step [ {{ {mapped} }} ] }}',
    )
    server = launch(repository)
    first, second, late = asked(
        server,
        step("whole", 7, 1, flags="S"),
        step("whole", 7, 2, flags="E"),
        step("whole", 7, 3),
    )
    assert (first.data(), second.data()) == ([1], [3])
    assert second.json["parameters"] == {"sequence_id": 7, "sequence_start": False, "sequence_end": True}
    late.refused("in ensemble 'whole', ", "must specify the START flag")


def accumulator() -> onnx.ModelProto:
    """acc_next = acc + X and acc_len_next = acc_len + 1; Y is ten times the sum."""
    nodes = [
        helper.make_node("Add", ["acc", "X"], ["acc_next"]),
        helper.make_node("Mul", ["acc_next", "ten"], ["Y"]),
        helper.make_node("Add", ["acc_len", "one"], ["acc_len_next"]),
    ]
    floats = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1]) for name in ("X", "acc")]
    count = helper.make_tensor_value_info("acc_len", TensorProto.INT32, ["n", 1])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1]) for name in ("Y", "acc_next")]
    outputs.append(helper.make_tensor_value_info("acc_len_next", TensorProto.INT32, ["n", 1]))
    constants = [
        helper.make_tensor("ten", TensorProto.FLOAT, [1], [10.0]),
        helper.make_tensor("one", TensorProto.INT32, [1], [1]),
    ]
    graph = helper.make_graph(nodes, "sums", [*floats, count], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


STATES = """
state { input_name: "acc" output_name: "acc_next" data_type: TYPE_FP32 dims: [ 1 ]
        initial_state { name: "five" data_type: TYPE_FP32 dims: [ 1 ] data_file: "five" } }
state { input_name: "acc_len" output_name: "acc_len_next" data_type: TYPE_INT32 dims: [ 1 ] }
"""


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { }"])
def test_implicit_states_of_an_onnx_model(launch: Launch, repository: Path, strategy: str) -> None:
    config = (
        'backend: "onnxruntime"\nmax_batch_size: 4\n'
        + declared("input", "X", "FP32", "[ 1 ]")
        + declared("output", "Y", "FP32", "[ 1 ]")
        + declared("output", "acc_len_next", "INT32", "[ 1 ]")
        + f"sequence_batching {{ {strategy} {LONG}{STATES} }}"
    )
    folder = write_model(repository, "sums", config, model_onnx=accumulator())
    (folder / "initial_state").mkdir()
    (folder / "initial_state" / "five").write_bytes(np.float32(5).tobytes())
    server = launch(repository)
    sums: dict[str, list[float]] = {}
    counts: dict[str, list[int]] = {}

    def follow(key: str) -> None:
        ask = Asker(server.port)
        for turn in range(5):
            flags = "S" if turn == 0 else "E" if turn == 4 else ""
            exchange = step("sums", key, int(key) + turn, flags=flags)
            exchange.document["inputs"][0]["datatype"] = "FP32"  # type: ignore[index]
            answer = exchange.send(ask)
            sums.setdefault(key, []).extend(answer.data())
            counts.setdefault(key, []).extend(answer.data("acc_len_next"))
        ask.close()

    threads = [threading.Thread(target=follow, args=(str(key),)) for key in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for key in map(str, range(1, 9)):
        assert sums[key] == [10 * (5 + sum(int(key) + turn for turn in range(last + 1))) for last in range(5)]
        assert counts[key] == [1, 2, 3, 4, 5]
