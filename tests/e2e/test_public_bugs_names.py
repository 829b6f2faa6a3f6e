"""What people report of names in requests: tensors missing, doubled or misspelt, datatype words, classification."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from asking import Asker, tensor, x

FLOAT_X = tensor("x", "FP32", [2], [1, 2])
FLOAT_Y = tensor("y", "FP32", [1], [3])


# Inputs missing, unknown, twice; outputs unknown, twice, in another order.


@pytest.mark.parametrize(
    ("inputs", "fragments"),
    [
        ([FLOAT_X], ["expected 2 inputs but got 1", "Got input(s) ['x']", "missing required input(s) ['y']"]),
        ([FLOAT_X, tensor("z", "FP32", [1], [3])], ["unexpected inference input 'z'", "'x', 'y'"]),
        ([FLOAT_X, FLOAT_X], ["input 'x' already exists in request"]),
        ([FLOAT_X, FLOAT_Y, tensor("z", "FP32", [1], [3])], ["unexpected inference input 'z'"]),
        ([], ["expected 2 inputs but got 0", "missing required input(s) ['x', 'y']"]),
    ],
    ids=["one-missing", "another-instead", "twice", "one-too-many", "none"],
)
def test_the_inputs_that_are_wrong_are_named(ask: Asker, inputs: list[Any], fragments: list[str]) -> None:
    ask.infer("pair", *inputs).refused(*fragments)


def test_a_misspelt_input_gets_a_hint(ask: Asker) -> None:
    ask.infer("fp32", tensor("x", "FP32", [1], [1])).refused("unexpected inference input 'x'", "'X'")


def test_a_request_without_inputs_is_told_what_one_looks_like(ask: Asker) -> None:
    ask.post("/v2/models/pair/infer", {}).refused("'inputs'", '{"inputs": [')
    ask.post("/v2/models/pair/infer", {"inputs": {}}).refused("'inputs'", "non-array as array")
    ask.post("/v2/models/pair/infer", {"inputs": [5]}).refused("each input must be a JSON object")


def test_unknown_and_doubled_outputs_are_named(ask: Asker) -> None:
    ask.infer("pair", FLOAT_X, FLOAT_Y, outputs=[{"name": "nope"}]).refused(
        "unexpected inference output 'nope' for model 'pair'", "'from_x', 'from_y'"
    )
    ask.infer("pair", FLOAT_X, FLOAT_Y, outputs=[{"name": "from_x"}, {"name": "from_x"}]).refused(
        "output 'from_x' already exists in request"
    )


@pytest.mark.parametrize("order", [["from_x", "from_y"], ["from_y", "from_x"], ["from_y"]])
def test_outputs_come_in_the_order_in_which_they_were_asked_for(ask: Asker, order: list[str]) -> None:
    answer = ask.infer("pair", FLOAT_Y, FLOAT_X, outputs=[{"name": name} for name in order])
    assert [output["name"] for output in answer.json["outputs"]] == order
    assert answer.data("from_y") == [3.0]


def test_an_optional_input_may_be_left_out(ask: Asker) -> None:
    one = tensor("x", "FP32", [1], [7])
    answer = ask.infer("maybe", one)
    assert [(output["name"], output["data"]) for output in answer.json["outputs"]] == [("from_x", [7.0])]
    ask.infer("maybe", tensor("y", "FP32", [1], [7])).refused("missing required input(s) ['x']")


# Datatype words: the config's, numpy's and the wire's get mixed up.


@pytest.mark.parametrize("word", ["TYPE_FP32", "float32", "fp32", "FLOAT"])
def test_a_near_miss_of_a_datatype_gets_the_right_word(ask: Asker, word: str) -> None:
    ask.infer("fp32", x(word, [1])).refused("'X'", f"'{word}'", "did you mean 'FP32'?")


@pytest.mark.parametrize("word", ["STRING", "TYPE_STRING"])
def test_strings_are_called_bytes_on_the_wire(ask: Asker, word: str) -> None:
    ask.infer("bytes", x(word, ["a"])).refused("'X'", f"'{word}'", "did you mean 'BYTES'?")


def test_another_datatype_than_the_models_is_never_cast(ask: Asker) -> None:
    ask.infer("fp32", x("FP64", [1])).refused("'X'", "data-type is 'FP64'", "expects 'FP32'")


@pytest.mark.parametrize("word", [None, 5, "", "complex64"])
def test_no_datatype_at_all_lists_what_there_is(ask: Asker, word: Any) -> None:
    ask.infer("fp32", x(word, [1])).refused("'X'", "datatype", "BF16")


# Classification, per output.


def classified(ask: Asker, rows: list[list[float]], classes: Any, **parameters: Any) -> Any:
    given = tensor("X", "FP32", [len(rows), 3], rows)
    wanted = [{"name": "Y", "parameters": {"classification": classes, **parameters}}]
    return ask.infer("labelled", given, outputs=wanted)


def test_classes_are_value_index_and_label_best_first_for_every_row(ask: Asker) -> None:
    output = classified(ask, [[0.5, 3.25, 1], [7, -1, 0]], 2).output()
    assert (output["datatype"], output["shape"]) == ("BYTES", [2, 2])
    assert output["data"] == ["3.250000:1:dög", "1.000000:2", "7.000000:0:cat", "0.000000:2"]


def test_more_classes_than_there_are_means_all_of_them(ask: Asker) -> None:
    output = classified(ask, [[1, 2, 3]], 99).output()
    assert (output["shape"], output["data"]) == ([1, 3], ["3.000000:2", "2.000000:1:dög", "1.000000:0:cat"])


def test_no_classes_means_the_plain_output(ask: Asker) -> None:
    output = classified(ask, [[1, 2, 3]], 0).output()
    assert (output["datatype"], output["shape"], output["data"]) == ("FP32", [1, 3], [1.0, 2.0, 3.0])


@pytest.mark.parametrize("classes", [-1, 1.0, "2", True, None])
def test_a_number_of_classes_that_is_none_is_refused(ask: Asker, classes: Any) -> None:
    classified(ask, [[1, 2, 3]], classes).refused("classification")


def test_classes_can_be_had_in_binary_too(ask: Asker) -> None:
    expected = b"3.000000:2", "2.000000:1:dög".encode()
    answer = classified(ask, [[1, 2, 3]], 2, binary_data=True)
    assert answer.output()["parameters"] == {"binary_data_size": sum(len(text) + 4 for text in expected)}
    assert answer.binary == b"".join(struct.pack("<I", len(text)) + text for text in expected)


def test_strings_have_no_best_class(ask: Asker) -> None:
    wanted = [{"name": "Y", "parameters": {"classification": 1}}]
    ask.infer("bytes", x("BYTES", ["a"]), outputs=wanted).refused("unsupported type", "BYTES")


# The batch dimension.


def test_a_forgotten_batch_dimension_is_explained(ask: Asker) -> None:
    message = ask.infer("rows", x("FP32", [1, 2, 3], [3])).refused("Expected [-1,3], got [3]", "batch dimension")
    assert "max_batch_size" in message


def test_a_model_without_batching_takes_the_whole_shape(ask: Asker) -> None:
    output = ask.infer("table", x("FP32", [1, 2, 3, 4, 5, 6], [2, 3])).output()
    assert (output["shape"], output["data"]) == ([2, 3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


def test_a_batch_that_is_too_large_is_told_the_limit(ask: Asker) -> None:
    ask.infer("rows", x("FP32", [0] * 15, [5, 3])).refused("batch-size must be <= 4", "got 5")


def test_a_batch_of_none_is_refused(ask: Asker) -> None:
    ask.infer("rows", x("FP32", [], [0, 3])).refused("batch-size must be >= 1")


# One tensor per column, as data frames become requests.


@pytest.mark.parametrize("shape", [[2, 1], [2]])
def test_a_column_may_be_n_or_n_by_1_as_the_model_declares(ask: Asker, shape: list[int]) -> None:
    model = {2: "column_table", 1: "columns"}[len(shape)]
    number = tensor("number", "FP32", shape, [1, 2], content_type="np")
    text = tensor("text", "BYTES", shape, ["a", "ü"], content_type="pd")
    answer = ask.infer(model, number, text, parameters={"content_type": "whatever"})
    assert [(o["name"], o["datatype"], o["shape"]) for o in answer.json["outputs"]] == [
        ("same_number", "FP32", shape),
        ("same_text", "BYTES", shape),
    ]
    assert (answer.data("same_number"), answer.data("same_text")) == ([1.0, 2.0], ["a", "ü"])
