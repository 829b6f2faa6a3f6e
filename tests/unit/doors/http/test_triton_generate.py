"""What a real Triton 2.51 answered on the generate routes, and what Bident answers.

``data/triton_2_51_generate.json`` holds requests and answers of these Python models:

- ``describe`` and ``describe_batch`` have optional inputs (below) and answer one string SAID: JSON of
  the request's id, parameters, and of each input its shape and elements;
- ``odd_names`` and ``id_input`` are like them, with one input called ``parameters`` or ``id``;
- ``talk`` is decoupled and does what its input PLAN says, a JSON array of steps: a step is a response
  with ``outputs`` (name, shape, data), or an ``error`` with its ``code``. A last step marked ``final``
  carries the final flag; otherwise an empty final response follows. ``plain`` is not decoupled, and
  answers with the first step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generate_house import Whole, generate_routes, read_whole
from http_line import Line, LineServer, post

from bident.errors import Code, ServeError
from bident.model.config import ModelConfig
from bident.wire.datatypes import DATATYPES
from bident.wire.infer import Column, InferRequest, InferResponse
from bident.wire.numbers import to_array
from tests.unit.doors.played_engine import PlayedEngine, PlayedServable
from tests.unit.engine.engine_fakes import model_config

CASES = json.loads((Path(__file__).parent / "data" / "triton_2_51_generate.json").read_text("utf-8"))

VECTORS = ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64")
SHAPED = {"ONE": "1", "FOUR": "4", "ROWS": "-1, 4", "COLUMNS": "4, -1", "OPEN": "-1, -1, 2, -1", "FIXED": "2, 3"}


def inputs(*tensors: tuple[str, str, str]) -> str:
    declared = [
        f'{{ name: "{name}" data_type: TYPE_{word} dims: [ {dims} ] optional: true }}' for name, word, dims in tensors
    ]
    return f"input [ {', '.join(declared)} ]"


SAID = 'output [ { name: "SAID" data_type: TYPE_STRING dims: [ 1 ] } ]'
TALK = """
input [ { name: "PLAN" data_type: TYPE_STRING dims: [ 1 ] } ]
output [
  { name: "NUMBERS" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "TEXT" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "FLAGS" data_type: TYPE_BOOL dims: [ -1 ] }, { name: "WHOLE" data_type: TYPE_INT64 dims: [ -1, -1 ] }
]
"""
OUTPUT_TYPES = {"NUMBERS": "FP32", "TEXT": "BYTES", "FLAGS": "BOOL", "WHOLE": "INT64"}

MODELS = {
    config.name: config
    for config in (
        model_config(
            "",
            io=inputs(
                *((word, word, "-1") for word in (*VECTORS, "STRING")),
                *((name, "INT32", dims) for name, dims in SHAPED.items()),
                ("TEXT", "STRING", "2, -1"),
            )
            + SAID,
            batch=0,
            name="describe",
        ),
        model_config(
            "",
            io=inputs(("ONE", "INT32", "1"), ("FOUR", "INT32", "4"), ("ANY", "INT32", "-1"), ("TEXT", "STRING", "1"))
            + SAID,
            batch=4,
            name="describe_batch",
        ),
        model_config("", io=inputs(("parameters", "INT32", "-1")) + SAID, batch=0, name="odd_names"),
        model_config("", io=inputs(("id", "STRING", "-1")) + SAID, batch=0, name="id_input"),
        model_config("model_transaction_policy { decoupled: true }", io=TALK, batch=0, name="talk"),
        model_config("", io=TALK, batch=0, name="plain"),
    )
}

IN_OTHER_WORDS = {
    "failed to parse the request JSON buffer": "failed to parse the request JSON buffer",
    "It should be either 'int', 'bool', or 'string'": "has invalid type. It should be either ",  # 2.73 has 'float' too
    "unexpected number of string elements": "Shape does not match true shape of 'data' field",
    "Unable to parse JSON bytes array": "attempt to access JSON non-string as string",
    "already exists in request": "input 'INT32' already exists in request",
    "batch size does not match other inputs": "batch size does not match other inputs for 'describe_batch'",
}
"""Part of a message of 2.51, and the part that is the same in ours."""

OURS_ALONE = {'{"id":["a","b"]}'}
"""Triton refuses these; an input called ``id`` may have more than one element here."""


def column(name: str, datatype: str, shape: list[int], data: list[Any]) -> Column:
    values = [value.encode() if isinstance(value, str) else value for value in data]
    dtype = DATATYPES[datatype].numpy
    return Column(name, DATATYPES[datatype], np.array(values, dtype).reshape(shape))


def describe(request: InferRequest) -> None:
    """What the models that describe their request do."""
    got: dict[str, Any] = {}
    for name, tensor in request.inputs.items():
        data = tensor.data
        if isinstance(data, list):
            data = to_array(name, tensor.datatype, data).reshape(tensor.shape)
        flat = [value.decode() if isinstance(value, bytes) else value for value in data.reshape(-1).tolist()]
        got[name] = [list(tensor.shape), flat]
    said = {
        "correlation": request.sequence_id,
        "flags": 0,
        "id": request.id,
        "inputs": got,
        "parameters": request.parameters or {},
        "timeout": request.timeout_us,
    }
    columns = [column("SAID", "BYTES", [1], [json.dumps(said, sort_keys=True)])]
    request.reply(InferResponse(request.model_name, "1", request.id, columns, 0, -1))


def act(request: InferRequest) -> None:
    """What ``talk`` and ``plain`` do."""
    plan = json.loads(request.inputs["PLAN"].data[0])
    if request.model_name == "plain":
        request.reply(step_of(request, {**plan[0], "final": True}))
        return
    for step in plan:
        request.reply(step_of(request, step))
    if not plan or "final" not in plan[-1]:
        request.reply(InferResponse("talk", "1", request.id, [], 0, -1))


def step_of(request: InferRequest, step: dict[str, Any]) -> InferResponse:
    columns = [column(name, OUTPUT_TYPES[name], shape, data) for name, shape, data in step.get("outputs", ())]
    response = InferResponse(request.model_name, "1", request.id, columns, 0, -1)
    response.final = step.get("final", False)
    if "error" in step:
        response.error = ServeError(Code[step.get("code", "INTERNAL")], step["error"])
    return response


def ask(config: ModelConfig, play: Callable[[InferRequest], None], route: str, body: str) -> Whole:
    line = Line(LineServer(generate_routes(PlayedEngine({config.name: PlayedServable(config, play)}))))
    line.send(post(f"/v2/models/{config.name}/{route}", body.encode()))
    (answer,) = read_whole(line.transport.written)
    assert answer.ended
    return answer


def ours(case: dict[str, Any]) -> Whole:
    play = act if case["model"] in ("talk", "plain") else describe
    return ask(MODELS[case["model"]], play, case["route"], case["body"])


def named(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=f"{case['model']}/{case['route']} {case['body'][:80]}") for case in cases]


TOLD = [case for case in CASES if case["model"] not in ("talk", "plain")]
PLAYED = [case for case in CASES if '"PLAN": "[' in case["body"]]
REFUSED = [case for case in CASES if case["status"] != 200 and case not in PLAYED]
NOT_ONE = "generate expects model to produce exactly 1 response"


@pytest.mark.parametrize("case", named([case for case in TOLD if case["status"] == 200]))
def test_a_request_means_to_the_model_what_it_means_in_triton(case: dict[str, Any]) -> None:
    answer = ours(case)
    assert answer.status == 200, answer.body
    mine, theirs = json.loads(answer.body), json.loads(case["answer"])
    assert list(mine) == list(theirs)
    assert json.loads(mine.pop("SAID")) == json.loads(theirs.pop("SAID"))
    assert mine == theirs


@pytest.mark.parametrize("case", named(REFUSED))
def test_a_refusal_has_tritons_words(case: dict[str, Any]) -> None:
    if case["body"] in OURS_ALONE:
        assert ours(case).status == 200
        return
    answer = ours(case)
    assert answer.status == 400, "where Triton has 500 it is the client's mistake all the same"
    assert answer.headers[b"content-type"] == b"application/json"
    mine, theirs = json.loads(answer.body)["error"], json.loads(case["answer"])["error"]
    alike = next((words for part, words in IN_OTHER_WORDS.items() if part in theirs), None)
    if alike is not None:
        assert alike in mine
    else:
        assert mine.startswith(theirs.removesuffix("."))


@pytest.mark.parametrize("case", named([case for case in PLAYED if NOT_ONE not in case["answer"]]))
def test_what_a_model_says_comes_out_as_from_triton(case: dict[str, Any]) -> None:
    answer = ours(case)
    assert answer.headers[b"content-type"].decode() == case["type"]
    assert answer.body.decode() == case["answer"]
    # 2.51 has 400 for all errors that come first; newer ones have the status that the error's code has.
    assert answer.status == {"NOT_FOUND": 404, "UNAVAILABLE": 503}.get(code_of(case), case["status"])


@pytest.mark.parametrize("case", named([case for case in PLAYED if NOT_ONE in case["answer"]]))
def test_generate_refuses_all_but_one_response_in_tritons_words(case: dict[str, Any]) -> None:
    answer = ours(case)
    assert json.loads(answer.body) == json.loads(case["answer"])
    assert answer.status == 500, "an error under status 200 would be taken for an answer"


def code_of(case: dict[str, Any]) -> str:
    plan = json.loads(json.loads(case["body"])["PLAN"])
    return str(plan[0].get("code", "")) if plan else ""


def test_there_is_something_to_compare() -> None:
    assert len(CASES) > 100
    assert {case["model"] for case in CASES} == set(MODELS)
