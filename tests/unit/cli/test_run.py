"""``bident run``: what a file becomes on its way to the model, and an answer on its way to the screen."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bident.local import process
from bident.local.record import STATE_DIR, Record
from tests.unit.cli.conftest import Bident, FakeModel, FakeServer, tensor

IRIS = [[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]


def only(server: FakeServer) -> Any:
    """The one tensor of the last question."""
    (array,) = server.asked[-1]["tensors"].values()
    return array


def write(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps(IRIS)),
        ("a.json", json.dumps({"X": IRIS})),
        ("a.json", json.dumps({"input": IRIS})),
        (
            "a.json",
            json.dumps({"inputs": [{"name": "X", "shape": [2, 4], "datatype": "FP32", "data": [*IRIS[0], *IRIS[1]]}]}),
        ),
        ("a.csv", "5.1,3.5,1.4,0.2\n6.7,3.0,5.2,2.3\n"),
        ("a.csv", "\ufeffsl,sw,pl,pw\r\n5.1,3.5,1.4,0.2\r\n6.7,3.0,5.2,2.3\r\n"),
        ("a.csv", "5.1;3.5;1.4;0.2\n6.7;3.0;5.2;2.3\n\n"),
        ("a.tsv", "5.1\t3.5\t1.4\t0.2\n6.7\t3.0\t5.2\t2.3\n"),
    ],
)
def test_the_same_rows_from_every_kind_of_text(bident: Bident, server: FakeServer, name: str, text: str) -> None:
    result = bident("run", "iris", write(name, text), "--url", server.url)
    assert result.code == 0, result.err
    np.testing.assert_array_equal(only(server), np.array(IRIS, np.float32))
    assert "10.2  11.2  12.2" in result.out
    assert "iris version 1, " in result.out


def test_a_header_that_no_model_declares_is_said_to_be_ignored(bident: Bident, server: FakeServer) -> None:
    source = write("a.csv", "pw,pl,sw,sl\n5.1,3.5,1.4,0.2\n")
    assert "header ignored: columns are taken in their order" in bident("run", "iris", source, "--url", server.url).err
    np.testing.assert_array_equal(only(server), np.array(IRIS[:1], np.float32))
    source = write("a.csv", "5.1,3.5,1.4,0.2\n")
    assert "header" not in bident("run", "iris", source, "--url", server.url).err


@pytest.mark.parametrize(
    ("mode", "state", "reason", "cure"),
    [
        ("poll", "UNAVAILABLE", "no file;", "no file; mend its folder, it is picked up by itself\n"),
        ("none", "UNAVAILABLE", "no file", "no file; mend its folder, then 'bident restart'\n"),
        ("explicit", "UNAVAILABLE", "no file", "no file; mend its folder, then 'bident load iris'\n"),
        (
            "none",
            "UNAVAILABLE",
            "KeyError: 1\n\nAt:\n  x.py(1): f\n",
            "KeyError: 1; mend its folder, then 'bident restart'\n",
        ),
        ("explicit", "UNAVAILABLE", "unloaded", "unloaded; load it with 'bident load iris'\n"),
        ("none", "", "", "it was never loaded; 'bident restart' loads it\n"),
        ("poll", "", "", "it was never loaded; it is loaded by itself soon\n"),
    ],
)
def test_what_helps_depends_on_the_control_mode(
    bident: Bident, server: FakeServer, mode: str, state: str, reason: str, cure: str
) -> None:
    server.models["iris"].state, server.models["iris"].reason = state, reason
    Path(STATE_DIR).mkdir()
    own = Record(os.getpid(), process.born(os.getpid()), server.url, "", "127.0.0.1", mode, 30, "log")
    own.write(Path(STATE_DIR))
    assert bident("run", "iris", "[1, 2, 3, 4]").err == f"bident: model 'iris' is not loaded: {cure}"


def test_numpy_files(bident: Bident, server: FakeServer) -> None:
    rows = np.array(IRIS)
    np.save("a.npy", rows)
    np.savez("one.npz", whatever=rows)
    np.savez("named.npz", X=rows)
    np.save("row.npy", rows[0])
    for name, expected in (("a.npy", rows), ("one.npz", rows), ("named.npz", rows), ("row.npy", rows[:1])):
        assert bident("run", "iris", name, "--url", server.url).code == 0
        np.testing.assert_array_equal(only(server), expected.astype(np.float32))


def test_standard_input(bident: Bident, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("[5.1, 3.5, 1.4, 0.2]"))
    assert bident("run", "iris", "-", "--url", server.url).code == 0
    np.testing.assert_array_equal(only(server), np.array(IRIS[:1], np.float32))


def test_json_prints_the_answer_as_it_came(bident: Bident, server: FakeServer) -> None:
    result = bident("run", "iris", write("a.json", json.dumps(IRIS[0])), "--url", server.url, "--json")
    answer = json.loads(result.out)
    assert answer["outputs"][0]["shape"] == [1, 3]
    np.testing.assert_allclose(answer["outputs"][0]["data"], [10.2, 11.2, 12.2], rtol=1e-6)
    assert server.asked[-1]["request"]["inputs"][0]["data"] == pytest.approx(IRIS[0])


def test_columns_are_matched_with_the_inputs_of_a_model_by_name(bident: Bident, server: FakeServer) -> None:
    server.models["two"] = FakeModel(
        inputs=[tensor("age", "INT64", -1, 1), tensor("city", "BYTES", -1, 1)],
        outputs=[tensor("y", "BYTES", -1, 1)],
        config={"max_batch_size": 8},
        answer=lambda tensors: {"y": tensors["city"]},
    )
    result = bident("run", "two", write("a.csv", "city,id,age\nBern,a,41\nZürich,b,7\n"), "--url", server.url)
    assert result.code == 0, result.err
    asked = server.asked[-1]["tensors"]
    assert asked["age"].tolist() == [[41], [7]]
    assert asked["city"].tolist() == [[b"Bern"], ["Zürich".encode()]]
    assert "Zürich" in result.out


def test_an_empty_cell_is_a_missing_number(bident: Bident, server: FakeServer) -> None:
    assert bident("run", "iris", write("a.csv", "1,,3,4\n"), "--url", server.url).code == 0
    np.testing.assert_array_equal(only(server), np.array([[1, np.nan, 3, 4]], np.float32))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{'X': 1}", "a.json is not JSON: "),
        ("a.json", '{"Y": [1]}', "'Y' is not an input: model 'iris' takes 'X' FP32 [-1, 4]"),
        ("a.json", "3", "got a single value, 3"),
        ("a.json", "null", "a.json holds null; expected a value, a list"),
        ("a.json", "[1, 2, 3]", "got shape [3]"),
        ("a.json", "[[1, 2, 3, 4], [1]]", "rows differ in length"),
        ("a.json", '["a", "b", "c", "d"]', "holds text, not numbers"),
        ("a.json", "{}", "no value for input 'X'"),
        ("a.csv", "", "a.csv is empty"),
        ("a.csv", "a,b,c,d\n", "has a header but no rows"),
        ("a.csv", "a,b,c,d,e\n1,2,3,4,5\n", "has 5 columns (a, b, c, d, e), input 'X' FP32 [-1, 4] takes 4"),
        ("a.csv", "1,2,3,4\n1,2,3\n", "row 2 has 3 cells, the first one 4"),
        ("a.csv", "1,2,3,4\n1,2,x,4\n", "row 2: 'x' is not a number"),
        ("a.npy", "no", "cannot be read as numpy arrays"),
        ("a.txt", "no", "is neither a picture nor named .json"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(
    bident: Bident, server: FakeServer, name: str, text: str, message: str
) -> None:
    result = bident("run", "iris", write(name, text), "--url", server.url)
    assert result.code == 1
    assert message in result.err
    assert not server.asked


def test_a_pickle_in_a_numpy_file_is_not_opened(bident: Bident, server: FakeServer) -> None:
    np.save("a.npy", np.array([{}], dtype=object), allow_pickle=True)
    result = bident("run", "iris", "a.npy", "--url", server.url)
    assert result.code == 1
    assert "cannot be read as numpy arrays" in result.err


def test_a_missing_file_lists_what_input_can_be(bident: Bident, server: FakeServer) -> None:
    result = bident("run", "iris", "nope.png", "--url", server.url)
    assert result.code == 1
    assert "there is no file nope.png; INPUT is a picture, .json, .csv" in result.err


@pytest.mark.parametrize(
    ("value", "message"),
    [([1.5], "holds fractions"), ([300], "it takes 0 to 255"), ([-1], "it takes 0 to 255")],
)
def test_numbers_never_change_their_value(bident: Bident, server: FakeServer, value: list[Any], message: str) -> None:
    server.models["iris"].inputs = [tensor("X", "UINT8", -1, 1)]
    result = bident("run", "iris", write("a.json", json.dumps(value)), "--url", server.url)
    assert result.code == 1
    assert message in result.err


def test_whole_floats_are_whole_numbers(bident: Bident, server: FakeServer) -> None:
    server.models["iris"].inputs = [tensor("X", "INT64", -1, 1)]
    assert bident("run", "iris", write("a.json", "[[2.0]]"), "--url", server.url).code == 0
    assert only(server).dtype == np.int64


@pytest.mark.parametrize(
    ("model", "state", "message"),
    [
        ("irsi", "READY", "there is no model 'irsi'; did you mean 'iris'?"),
        ("iris", "UNAVAILABLE", "model 'iris' is not loaded: broken file; mend its folder, then 'bident load iris'"),
        ("iris", "", "it was never loaded"),
    ],
)
def test_a_model_that_cannot_answer(bident: Bident, server: FakeServer, model: str, state: str, message: str) -> None:
    server.models["iris"].state = state
    server.models["iris"].reason = "broken file" if state == "UNAVAILABLE" else ""
    result = bident("run", model, write("a.json", "[1]"), "--url", server.url)
    assert result.code == 1
    assert message in result.err


def labelled(server: FakeServer, size: int = 1000) -> None:
    server.models["net"] = FakeModel(
        inputs=[tensor("data", "FP32", -1, 3, 224, 224)],
        outputs=[tensor("scores", "FP32", -1, size)],
        config={"max_batch_size": 4, "output": [{"name": "scores", "label_filename": "labels.txt"}]},
        answer=lambda tensors: {"scores": np.linspace(0, 1, size, dtype=np.float32)[None]},
    )


def picture(width: int = 320, height: int = 240, colour: tuple[int, ...] = (255, 0, 51)) -> str:
    Image.new("RGB", (width, height), colour).save("a.png")
    return "a.png"


def test_labels_come_as_the_best_classes(bident: Bident, server: FakeServer) -> None:
    labelled(server)
    result = bident("run", "net", picture(), "--top", "2", "--url", server.url)
    assert result.code == 0, result.err
    rows = [line.split() for line in result.out.splitlines() if "label" in line and "rank" not in line]
    assert [row[1:5] for row in rows] == [["1", "label", "999", "999"], ["2", "label", "998", "998"]]


def test_values_without_labels_show_the_largest(bident: Bident, server: FakeServer) -> None:
    labelled(server)
    del server.models["net"].config["output"]
    result = bident("run", "net", picture(), "--top", "1", "--url", server.url)
    assert "the 1 largest values" in result.out
    assert "999" in result.out


def test_large_outputs_are_outlined(bident: Bident, server: FakeServer) -> None:
    labelled(server)
    server.models["net"].answer = lambda tensors: {"scores": np.ones((1, 84, 8400), np.float32)}
    server.models["net"].config.pop("output")
    assert "[1, 84, 8400]: 705600 values from 1 to 1" in bident("run", "net", picture(), "--url", server.url).out


def test_the_usual_normalisation_is_guessed_and_said(bident: Bident, server: FakeServer) -> None:
    labelled(server)
    result = bident("run", "net", picture(), "--url", server.url)
    assert "ImageNet mean and std (a guess; say --mean, --std, --scale)" in result.err
    expected = (np.array([1.0, 0.0, 0.2]) - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(only(server)[0, :, 100, 7], expected, rtol=1e-5)


def test_the_model_says_how_it_wants_its_pictures(bident: Bident, server: FakeServer) -> None:
    labelled(server)
    text = "scale=0.0078125,shift=-0.9921875,size=224,crop=center"
    server.models["net"].config["parameters"] = {"image_preprocess": {"string_value": text}}
    bident("run", "net", picture(), "--url", server.url)
    np.testing.assert_allclose(only(server)[0, :, 0, 0], (np.array([255, 0, 51]) - 127) / 128, rtol=1e-6)


def test_the_command_line_goes_before_what_the_model_says(bident: Bident, server: FakeServer) -> None:
    labelled(server)
    server.models["net"].config["parameters"] = {"image_preprocess": {"string_value": "scale=9,crop=stretch"}}
    bident("run", "net", picture(), "--scale=1", "--mean=1,2,3", "--std=2", "--url", server.url)
    np.testing.assert_allclose(only(server)[0, :, 0, 0], [127, -1, 24], rtol=1e-6)


@pytest.mark.parametrize("words", [["--mean=1,2"], ["--std=0"], ["--std=x"], ["--crop=left"]])
def test_bad_picture_options(bident: Bident, server: FakeServer, words: list[str]) -> None:
    labelled(server)
    result = bident("run", "net", picture(), *words, "--url", server.url)
    assert result.code == 1
    assert words[0].partition("=")[0].lstrip("-") in result.err


def test_a_bad_declaration_is_told_with_its_form(bident: Bident, server: FakeServer) -> None:
    labelled(server)
    server.models["net"].config["parameters"] = {"image_preprocess": {"string_value": "loud"}}
    result = bident("run", "net", picture(), "--url", server.url)
    assert "image_preprocess is 'loud'; expected scale=<number>" in result.err


def test_the_three_ways_to_cut(bident: Bident, server: FakeServer) -> None:
    """A picture whose left and right quarters are white: cut away, kept narrow, or kept with grey above."""
    labelled(server)
    pixels = np.zeros((100, 200, 3), np.uint8)
    pixels[:, :50] = pixels[:, 150:] = 255
    Image.fromarray(pixels).save("a.png")
    seen = {}
    for crop in ("center", "stretch", "pad"):
        bident("run", "net", "a.png", f"--crop={crop}", "--scale=1", "--url", server.url)
        seen[crop] = only(server)[0, 0]
    assert seen["center"][112, 2] == 0
    assert seen["stretch"][112, 2] == 255
    assert seen["stretch"][2, 2] == 255
    assert seen["pad"][112, 2] == 255
    assert seen["pad"][2, 2] == 114


@pytest.mark.parametrize(
    ("datatype", "shape", "expected"),
    [
        ("UINT8", (-1, 64, 64, 3), (1, 64, 64, 3)),
        ("FP32", (3, 32, 48), (3, 32, 48)),
        ("FP16", (-1, 1, 28, 28), (1, 1, 28, 28)),
        ("FP32", (-1, 3, -1, -1), (1, 3, 224, 224)),
    ],
)
def test_layouts(
    bident: Bident, server: FakeServer, datatype: str, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    labelled(server)
    server.models["net"].inputs = [tensor("data", datatype, *shape)]
    result = bident("run", "net", picture(), "--url", server.url)
    assert result.code == 0, result.err
    assert only(server).shape == expected
    if datatype == "UINT8":
        assert only(server)[0, 30, 30].tolist() == [255, 0, 51]


def test_a_picture_for_a_model_that_takes_none(bident: Bident, server: FakeServer) -> None:
    result = bident("run", "iris", picture(), "--url", server.url)
    assert "a picture needs one input shaped [3, height, width]; model 'iris' takes 'X' FP32 [-1, 4]" in result.err


def test_synthetic_weights_are_said(bident: Bident, server: FakeServer) -> None:
    server.models["iris"].config["parameters"] = {"synthetic_weights": {"string_value": "true"}}
    result = bident("run", "iris", write("a.json", "[1,2,3,4]"), "--url", server.url)
    assert "synthetic weights: this answer means nothing" in result.err


def test_an_optional_input_may_be_left_out(bident: Bident, server: FakeServer) -> None:
    model = server.models["iris"]
    model.inputs = [*model.inputs, tensor("extra", "FP32", -1, 1)]
    model.config["input"] = [{"name": "extra", "optional": True}]
    assert bident("run", "iris", write("a.json", "[1,2,3,4]"), "--url", server.url).code == 0
    assert list(server.asked[-1]["tensors"]) == ["X"]


def corrid(datatype: str) -> dict[str, Any]:
    """The ``sequence_batching`` of a model that takes its sequence's id as ``datatype``."""
    control = {"kind": "CONTROL_SEQUENCE_CORRID", "data_type": datatype}
    return {"control_input": [{"name": "ID", "control": [control]}]}


@pytest.mark.parametrize(("datatype", "kind"), [("TYPE_INT32", int), ("TYPE_STRING", str)])
@pytest.mark.parametrize("source", ["[[1, 2, 3, 4]]", "whole request"])
def test_a_sequence_model_is_asked_a_sequence_of_one(
    bident: Bident, server: FakeServer, datatype: str, kind: type, source: str
) -> None:
    server.models["iris"].config["sequence_batching"] = corrid(datatype)
    if source == "whole request":
        source = json.dumps({"inputs": [{"name": "X", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]})
    result = bident("run", "iris", source, "--url", server.url)
    assert result.code == 0, result.err
    sent = server.asked[-1]["request"]["parameters"]
    assert (type(sent["sequence_id"]), sent["sequence_start"], sent["sequence_end"]) == (kind, True, True)
    assert 0 < int(sent["sequence_id"]) < 2**31
    assert "a sequence of one request" in result.err


@pytest.mark.parametrize("place", ["option", "body", "iterative"])
def test_nothing_is_added_where_the_sequence_is_said_or_not_needed(
    bident: Bident, server: FakeServer, place: str
) -> None:
    server.models["iris"].config["sequence_batching"] = {
        **corrid("TYPE_INT32"),
        "iterative_sequence": place == "iterative",
    }
    body: dict[str, Any] = {"inputs": [{"name": "X", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
    if place == "body":
        body["parameters"] = {"sequence_id": 7}
    words = ["--param", "sequence_id=7"] if place == "option" else []
    result = bident("run", "iris", json.dumps(body), *words, "--url", server.url)
    assert result.code == 0, result.err
    assert server.asked[-1]["request"].get("parameters", {}) == ({} if place == "iterative" else {"sequence_id": 7})
