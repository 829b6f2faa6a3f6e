"""Every app that is written for Dify is one, whatever the model; and models that it cannot use are told why."""

from __future__ import annotations

import json
import re

import pytest
from dify_format import checked
from dify_models import DETECT, FIT, IRIS, UNFIT, X, Y, model

from bident.connect.dify.names import Names
from bident.connect.dify.tensors import UnfitError
from bident.connect.dify.workflow import VERSIONS, workflow

SERVER = "http://tensor.infer.local:8000"


def written(tensor_model, **choices):
    return checked(workflow(tensor_model, SERVER, **{"pictures": "file", **choices}))


def nodes(app):
    return {node["id"]: node["data"] for node in app["workflow"]["graph"]["nodes"]}


@pytest.mark.parametrize("pictures", ["file", "base64"])
@pytest.mark.parametrize("with_key", [False, True])
@pytest.mark.parametrize("tensor_model", FIT, ids=lambda each: each.name)
def test_is_an_app_that_dify_can_import(tensor_model, pictures, with_key):
    for version in VERSIONS:
        app = written(tensor_model, version=version, pictures=pictures, with_key=with_key)
        assert app["version"] == version
        assert app["workflow"]["environment_variables"][0]["value"] == SERVER


@pytest.mark.parametrize(("tensor_model", "why"), UNFIT, ids=lambda each: getattr(each, "name", ""))
def test_says_why_a_model_is_no_app(tensor_model, why):
    with pytest.raises(UnfitError, match=re.escape(why)):
        written(tensor_model)


def test_numbers_go_straight_into_the_request():
    app = nodes(written(IRIS))
    assert list(app) == ["start", "ask", "read", "end"]
    assert [field["type"] for field in app["start"]["variables"]] == ["number"] * 4
    template = app["ask"]["body"]["data"][0]["value"]
    body = json.loads(re.sub(r"\{\{#start\.X_(\d)#\}\}", r"\1.5", template))
    assert body["inputs"] == [{"name": "X", "shape": [1, 4], "datatype": "FP32", "data": [1.5, 2.5, 3.5, 4.5]}]
    assert body["outputs"] == [{"name": "label"}, {"name": "p", "parameters": {"classification": 3}}]


def test_text_goes_through_code_first_because_it_may_hold_quotes():
    app = nodes(written(next(each for each in FIT if each.name == "text")))
    assert list(app) == ["start", "prepare", "ask", "read", "end"]
    assert app["ask"]["body"]["data"][0]["value"] == "{{#prepare.request#}}"


def test_a_picture_is_uploaded_and_sent_as_it_is():
    app = nodes(written(DETECT))
    (field,) = app["start"]["variables"]
    assert (field["type"], field["allowed_file_types"]) == ("file", ["image"])
    assert app["ask"]["body"] == {
        "type": "binary",
        "data": [{"id": "body", "key": "", "value": "", "type": "file", "file": ["start", "IMAGE"]}],
    }
    assert set(app["ask"]["headers"].splitlines()) == {
        "Inference-Header-Content-Length:0",
        "Accept:application/json",
        "Content-Type:application/octet-stream",
    }


def test_what_answers_in_rows_is_a_table():
    assert nodes(written(DETECT))["read"]["outputs"] == {
        "count": {"type": "number", "children": None},
        "rows": {"type": "array[object]", "children": None},
        "answer": {"type": "string", "children": None},
    }


@pytest.mark.parametrize(
    ("outputs", "labelled", "kinds"),
    [
        ([("y", "FP32", [1000])], (), {"y": "array[number]"}),
        ([("y", "FP32", [1001])], (), {"y": "string"}),
        ([("y", "BYTES", [30])], (), {"y": "array[string]"}),
        ([("y", "BYTES", [31])], (), {"y": "string"}),
        ([("y", "BOOL", [30])], (), {"y": "array[boolean]"}),
        ([("y", "FP32", [2, 2])], (), {"y": "string"}),
        ([("y", "FP32", [-1])], (), {"y": "string"}),
        ([("y", "FP32", [3])], ("y",), {"best": "string", "score": "number", "ranking": "array[object]"}),
        ([("y", "FP32", [30_001])], (), {"best": "string", "score": "number", "ranking": "array[object]"}),
    ],
)
def test_outputs_become_what_variables_can_hold(outputs, labelled, kinds):
    outputs_of = nodes(written(model("m", [X], outputs, labelled=labelled)))["read"]["outputs"]
    assert {name: each["type"] for name, each in outputs_of.items()} == {**kinds, "answer": "string"}


def test_what_is_too_large_is_not_asked_for_and_said():
    app = written(model("m", [X], [Y, ("map", "FP32", [84, 8400])]))
    assert '"map"' not in nodes(app)["ask"]["body"]["data"][0]["value"]
    assert "Too large for Dify and left out: map." in app["app"]["description"]


def test_synthetic_weights_are_called_that():
    app = written(next(each for each in FIT if each.name == "made up"))
    assert "synthetic" in app["app"]["description"]
    assert "synthetic" not in written(IRIS)["app"]["description"]


def test_the_key_is_a_secret_that_nobody_has_written_down():
    app = written(IRIS, with_key=True)
    secret = app["workflow"]["environment_variables"][1]
    assert (secret["value_type"], secret["value"]) == ("secret", "")
    assert nodes(app)["ask"]["authorization"]["config"]["api_key"] == "{{#env.api_key#}}"


def test_names_are_given_once():
    names = Names("answer")
    given = [names.name(wish) for wish in ("answer", "answer", "class", "1", "名", "", "a" * 40, "a" * 40)]
    assert given == ["answer_2", "answer_3", "_class", "_1", "value", "value_2", "a" * 30, "a" * 28 + "_2"]
