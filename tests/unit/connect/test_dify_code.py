"""What runs in Dify's code nodes: within Dify's limits it reads any answer, and writes any request that was meant."""

from __future__ import annotations

import json
import math
from decimal import Decimal

import pytest
from dify_models import DETECT, IRIS, X, Y, model
from hypothesis import given
from hypothesis import strategies as st

from bident.connect.dify.answer import reading
from bident.connect.dify.question import question
from bident.connect.dify.tensors import shape_of
from bident.connect.dify.workflow import code


def main_of(module, plan):
    space = {}
    exec(code(module, plan), space)
    return space["main"]


def reader(tensor_model, top=5, **choices):
    return main_of("read_answer", reading(shape_of(tensor_model), top, **choices).plan)


def writer(tensor_model):
    asked = question(shape_of(tensor_model), [])
    main = main_of("write_request", asked.plan)
    names = [field["variable"] for field in asked.fields]

    def write(*values):
        return json.loads(main(**dict(zip(names, values, strict=True)))["request"])["inputs"]

    return write


def answer(**outputs):
    """A v2 answer: name -> (shape, data)."""
    described = [{"name": name, "shape": shape, "data": data} for name, (shape, data) in outputs.items()]
    return json.dumps({"model_name": "m", "outputs": described})


def test_a_ranking_has_names():
    body = answer(label=([1, 1], [0]), p=([1, 3], ["0.9:0:setosa", "0.1:1:iris: the second", "0.0:2"]))
    assert reader(IRIS)(200, body) == {
        "label": 0,
        "best": "setosa",
        "score": 0.9,
        "ranking": [
            {"label": "setosa", "score": 0.9, "number": 0},
            {"label": "iris: the second", "score": 0.1, "number": 1},
            {"label": "2", "score": 0.0, "number": 2},
        ],
        "answer": json.dumps(
            {
                "label": 0,
                "best": "setosa",
                "score": 0.9,
                "ranking": [
                    {"label": "setosa", "score": 0.9, "number": 0},
                    {"label": "iris: the second", "score": 0.1, "number": 1},
                    {"label": "2", "score": 0.0, "number": 2},
                ],
            }
        ),
    }


@pytest.mark.parametrize("count", [0, 1, 30, 300])
def test_a_table_has_a_row_for_each_thing(count):
    body = answer(
        BOXES=([count, 4], list(range(4 * count))),
        SCORES=([count], [0.5] * count),
        LABELS=([count], ["cat"] * count),
    )
    found = reader(DETECT, selects=False)(200, body)
    assert found["count"] == count
    assert len(found["rows"]) == min(count, 30)
    assert found["rows"][:1] == [{"BOXES": [0, 1, 2, 3], "SCORES": 0.5, "LABELS": "cat"}][:count]


def test_columns_of_different_lengths_are_no_table():
    body = answer(BOXES=([1, 4], [0] * 4), SCORES=([2], [0.5, 0.4]), LABELS=([1], ["cat"]))
    found = reader(DETECT, selects=False)(200, body)
    assert (found["count"], found["rows"]) == (None, [])


def test_lists_within_lists_are_json():
    states = model("m", [X], [("states", "FP32", [-1, 2, 3])])
    found = reader(states)(200, answer(states=([1, 2, 2, 3], list(range(12)))))
    assert json.loads(found["states"]) == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]
    assert "states" not in json.loads(found["answer"])
    assert reader(states)(200, answer(states=([1, 0, 2, 3], [])))["states"] == "[]"


def test_more_than_a_variable_holds_is_an_error():
    states = model("m", [X], [("states", "FP32", [-1])])
    with pytest.raises(ValueError, match="'states' has 450000 characters as text, and a variable in Dify holds 400000"):
        reader(states)(200, answer(states=([1, 150_000], [7] * 150_000)))


@given(st.lists(st.floats() | st.integers() | st.none(), min_size=4, max_size=4))
def test_numbers_are_such_as_dify_takes(values):
    """Dify refuses numbers of more than 63 bits or 20 digits behind the point, and a null among numbers."""
    body = answer(y=([1, 4], [None if isinstance(v, float) and not math.isfinite(v) else v for v in values]))
    found = reader(model("m", [X], [("y", "FP64", [4])]))(200, body)["y"]
    if found is None:
        assert any(value is None or not abs(value) < 2**63 for value in values)
        return
    for value, taken in zip(values, found, strict=True):
        assert abs(taken) < 2**63
        assert math.isclose(value, taken, abs_tol=1e-20)
        assert isinstance(taken, int) or -Decimal(str(taken)).normalize().as_tuple().exponent <= 20


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, '{"error": "unexpected shape"}', "the tensor server answered 400: unexpected shape"),
        (403, '<body id="ERR_ACCESS_DENIED">', "SSRF_PROXY_ALLOW_PRIVATE_DOMAINS or SSRF_PROXY_ALLOW_PRIVATE_IPS"),
        (502, "<html>Bad Gateway</html>", r"no answer of a tensor server \(status 502\): <html>Bad Gateway"),
        (200, "", r"no answer of a tensor server \(status 200\): nothing"),
        (200, "[]", "no answer of a tensor server"),
        (200, '{"outputs": 1}', "no answer of a tensor server"),
        (500, "null", "no answer of a tensor server"),
    ],
)
def test_what_is_no_answer_is_said(status, body, said):
    with pytest.raises(ValueError, match=said):
        reader(IRIS)(status, body)


@pytest.mark.parametrize("text", ["[1,2,3]", "1, 2, 3", "1 2\n3", "[[1],[2],[3]]", " 1;2;3 ", "[1, 2, 3]\n"])
def test_a_list_may_be_written_in_any_way(text):
    (tensor,) = writer(model("m", [("x", "INT32", [-1])], [Y]))(text)
    assert tensor == {"name": "x", "shape": [1, 3], "datatype": "INT32", "data": [1, 2, 3]}


@pytest.mark.parametrize(
    ("dims", "text", "shape"),
    [
        ([-1], "7", [1, 1]),
        ([-1, 2], "[1,2,3,4]", [1, 2, 2]),
        ([2, -1], "[[1,2],[3,4]]", [1, 2, 2]),
        ([-1, -1], "[[1,2,3]]", [1, 1, 3]),
        ([-1, -1], "[[1],[2]]", [1, 2, 1]),
        ([20], json.dumps([0] * 20), [1, 20]),
    ],
)
def test_shapes_follow_from_what_is_given(dims, text, shape):
    (tensor,) = writer(model("m", [("x", "FP32", dims)], [Y]))(text)
    assert tensor["shape"] == shape


@pytest.mark.parametrize(
    ("datatype", "dims", "text", "said"),
    [
        ("FP32", [20], "[1, 2]", r"x: 2 elements do not fill the shape \[20\]"),
        ("FP32", [-1], "", r"x: 0 elements do not fill the shape \[-1\]"),
        ("FP32", [-1, 2], "[1]", "x: 1 elements do not fill"),
        ("FP32", [-1, -1], "[[1, 2], [3]]", "x: 3 elements do not fill"),
        ("FP32", [-1], "one two", r"x: write a JSON list such as \[1, 2, 3\], not 'one two'"),
        ("FP32", [-1], '["1"]', "x: '1' is not of type FP32"),
        ("FP32", [-1], "[true]", "x: True is not of type FP32"),
        ("BOOL", [-1], "[1]", "x: 1 is not of type BOOL"),
        ("BYTES", [-1], "[1]", "x: 1 is not of type BYTES"),
        ("FP32", [-1], "{}", "x: {} is not of type FP32"),
    ],
)
def test_what_does_not_fit_is_said(datatype, dims, text, said):
    with pytest.raises(ValueError, match=said):
        writer(model("m", [("x", datatype, dims)], [Y]))(text)


def test_values_of_every_kind():
    every = model(
        "m",
        [
            ("t", "BYTES", [1]),
            ("b", "BOOL", [1]),
            ("n", "FP32", [2]),
            ("words", "BYTES", [-1]),
            ("flags", "BOOL", [-1]),
        ],
        [Y],
    )
    given_ = ('say "hi" {{#start.t#}}\n', "true", 1.5, 2, "one\ntwo words", "[true, false]")
    assert [tensor["data"] for tensor in writer(every)(*given_)] == [
        ['say "hi" {{#start.t#}}\n'],
        [True],
        [1.5, 2],
        ["one", "two words"],
        [True, False],
    ]


@pytest.mark.parametrize(("more", "names"), [(None, ["X"]), ("", ["X"]), ("[1, 2]", ["X", "more"])])
def test_optional_inputs_may_be_left_out(more, names):
    extra = model("m", [X, ("more", "FP32", [2])], [Y], optional=("more",))
    assert [tensor["name"] for tensor in writer(extra)(1, 2, 3, 4, more)] == names
