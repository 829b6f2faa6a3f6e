"""``bident run`` for models that take files or texts, and for those that answer with objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.unit.cli.conftest import Bident, FakeModel, FakeServer, tensor

BOXES = [[10, 40, 60, 90], [20, 50, 30, 60]]


def detector(
    server: FakeServer, boxes: list[list[float]] | None = None, names: tuple[bytes, ...] = (b"cat", b"dog")
) -> None:
    """A model without batches, its outputs not in the order in which they are declared."""
    boxes = BOXES if boxes is None else boxes
    count = len(boxes)
    server.models["detect"] = FakeModel(
        inputs=[tensor("IMAGE", "BYTES", 1)],
        outputs=[
            tensor("BOXES", "FP32", -1, 4),
            tensor("SCORES", "FP32", -1),
            tensor("CLASS_IDS", "INT32", -1),
            tensor("LABELS", "BYTES", -1),
        ],
        config={"max_batch_size": 0, "platform": "ensemble"},
        answer=lambda tensors: {
            "LABELS": np.array(names[:count], object),
            "SCORES": np.array([0.9, 0.55][:count], np.float32),
            "CLASS_IDS": np.array([15, 16][:count], np.int32),
            "BOXES": np.array(boxes, np.float32).reshape(-1, 4),
        },
    )


def texts(server: FakeServer) -> None:
    server.models["texts"] = FakeModel(
        inputs=[tensor("TEXT", "BYTES", -1, 1)],
        outputs=[tensor("LABEL", "BYTES", -1, 1), tensor("SCORE", "FP32", -1, 1)],
        config={"max_batch_size": 8, "backend": "python"},
        answer=lambda tensors: {
            "LABEL": np.array([[b"POSITIVE"]] * len(tensors["TEXT"]), object),
            "SCORE": np.full((len(tensors["TEXT"]), 1), 0.75, np.float32),
        },
    )


def asked(server: FakeServer) -> Any:
    (array,) = server.asked[-1]["tensors"].values()
    return array


def photo(name: str = "photo.jpg", width: int = 100, height: int = 120) -> bytes:
    Image.new("RGB", (width, height), "white").save(name)
    return Path(name).read_bytes()


def test_a_picture_is_sent_as_it_is(bident: Bident, server: FakeServer) -> None:
    detector(server)
    data = photo()
    result = bident("run", "detect", "photo.jpg", "--url", server.url)
    assert result.code == 0, result.err
    assert asked(server).tolist() == [data]
    assert f"photo.jpg: sent as it is, {len(data)} bytes" in result.err


def test_a_row_is_added_where_the_model_batches(bident: Bident, server: FakeServer) -> None:
    texts(server)
    data = photo()
    assert bident("run", "texts", "photo.jpg", "--url", server.url).code == 0
    assert asked(server).tolist() == [[data]]


@pytest.mark.parametrize(
    "text", ["This movie is fantastic", "both/either of them, costs 3.50", "is it in photo.jpg or not?", "x " * 5000]
)
def test_a_text_stays_a_text(bident: Bident, server: FakeServer, text: str) -> None:
    texts(server)
    result = bident("run", "texts", text, "--url", server.url)
    assert result.code == 0, result.err
    assert asked(server).tolist() == [[text.encode()]]
    assert result.err == ""
    assert [line.split() for line in result.out.splitlines() if "POSITIVE" in line] == [
        ["0", "1", "POSITIVE", "0.7500"]
    ]


def test_one_word_is_a_text_but_perhaps_a_wrong_name(bident: Bident, server: FakeServer) -> None:
    texts(server)
    assert "there is no file great: sent as text" in bident("run", "texts", "great", "--url", server.url).err
    assert asked(server).tolist() == [[b"great"]]


@pytest.mark.parametrize("name", ["phota.jpg", "my photo.PNG", "data.json", "pictures/great"])
def test_a_file_that_is_not_there_is_no_text(bident: Bident, server: FakeServer, name: str) -> None:
    texts(server)
    result = bident("run", "texts", name, "--url", server.url)
    assert result.code == 1
    assert f"there is no file {name}; INPUT is" in result.err
    assert server.asked == []


def test_a_text_is_no_input_for_numbers(bident: Bident, server: FakeServer) -> None:
    assert "there is no file some words" in bident("run", "iris", "some words", "--url", server.url).err


def test_several_texts_come_as_json(bident: Bident, server: FakeServer) -> None:
    texts(server)
    result = bident("run", "texts", '[["good"], ["bad"]]', "--url", server.url)
    assert asked(server).tolist() == [[b"good"], [b"bad"]]
    assert result.out.count("POSITIVE") == 2


@pytest.mark.parametrize(
    ("source", "sent"),
    [
        ('["good", "bad"]', [[b"good"], [b"bad"]]),
        ('["good"]', [[b"good"]]),
        ('{"TEXT": "good"}', [[b"good"]]),
        ('{"TEXT": ["good", "bad", "so"]}', [[b"good"], [b"bad"], [b"so"]]),
        ('"good"', [[b"good"]]),
        ('""', [[b""]]),
        ('"Good", he said', [[b'"Good", he said']]),
    ],
)
def test_values_without_the_lists_around_them(bident: Bident, server: FakeServer, source: str, sent: Any) -> None:
    texts(server)
    result = bident("run", "texts", source, "--url", server.url)
    assert result.code == 0, result.err
    assert asked(server).tolist() == sent


def test_a_list_is_rows_only_where_it_can_be_nothing_else(bident: Bident, server: FakeServer) -> None:
    server.models["pairs"] = FakeModel(
        inputs=[tensor("PAIR", "BYTES", -1, 2)],
        outputs=[tensor("Y", "BYTES", -1, 2)],
        config={"max_batch_size": 8},
        answer=lambda tensors: {"Y": tensors["PAIR"]},
    )
    assert bident("run", "pairs", '["a", "b"]', "--url", server.url).code == 0
    assert asked(server).tolist() == [[b"a", b"b"]]
    assert "got shape [3]" in bident("run", "pairs", '["a", "b", "c"]', "--url", server.url).err
    assert "got a single value, b'a'" in bident("run", "pairs", '"a"', "--url", server.url).err


@pytest.mark.parametrize(
    ("source", "message"),
    [("", "INPUT is empty; it is a text for a model"), (".", ". is a folder; INPUT is a picture")],
)
def test_nothing_and_folders_are_no_input(bident: Bident, server: FakeServer, source: str, message: str) -> None:
    texts(server)
    result = bident("run", "texts", source, "--url", server.url)
    assert (result.code, message in result.err) == (1, True), result.err
    assert server.asked == []


def test_objects_are_shown_name_first(bident: Bident, server: FakeServer) -> None:
    detector(server)
    photo()
    lines = [line.split() for line in bident("run", "detect", "photo.jpg", "--url", server.url).out.splitlines()]
    assert ["row", "rank", "LABELS", "SCORES", "CLASS_IDS", "BOXES"] in lines
    assert ["0", "1", "cat", "0.9000", "15", "10.0", "40.0", "60.0", "90.0"] in lines
    assert ["0", "2", "dog", "0.5500", "16", "20.0", "50.0", "30.0", "60.0"] in lines


def test_nothing_found_is_said(bident: Bident, server: FakeServer) -> None:
    detector(server, [])
    photo()
    result = bident("run", "detect", "photo.jpg", "--save", "out.png", "--url", server.url)
    assert result.code == 0, result.err
    assert "LABELS, SCORES, CLASS_IDS, BOXES: nothing found" in result.out
    assert "0 boxes drawn: out.png" in result.out


def test_rankings_are_cut_where_the_user_says(bident: Bident, server: FakeServer) -> None:
    texts(server)
    server.models["texts"].answer = lambda tensors: {
        "LABEL": np.array([[b"one", b"two", b"three"]], object),
        "SCORE": np.array([[0.5, 0.3, 0.2]], np.float32),
    }
    result = bident("run", "texts", "some words", "--top", "2", "--url", server.url)
    assert "two" in result.out
    assert "three" not in result.out


def test_classes_of_a_labelled_output_are_ranked_by_themselves(bident: Bident, server: FakeServer) -> None:
    texts(server)
    model = server.models["texts"]
    model.config["output"] = [{"name": "SCORE", "label_filename": "labels.txt"}]
    model.answer = lambda tensors: {
        "LABEL": np.array([[b"one", b"two"]], object),
        "SCORE": np.array([[0.1, 0.7, 0.2]], np.float32),
    }
    result = bident("run", "texts", "some words", "--top", "2", "--url", server.url)
    assert ["0", "1", "label", "1", "1", "0.700000"] in [line.split() for line in result.out.splitlines()]
    assert "one  two" in result.out


def test_boxes_are_drawn_into_a_copy(bident: Bident, server: FakeServer) -> None:
    detector(server)
    before = photo("photo.png")
    result = bident("run", "detect", "photo.png", "--save", "out.png", "--url", server.url)
    assert result.code == 0, result.err
    assert "2 boxes drawn: out.png" in result.out
    assert Path("photo.png").read_bytes() == before
    drawn = np.asarray(Image.open("out.png"))
    assert drawn.shape == (120, 100, 3)
    frame, inner = drawn[90, 35], drawn[60, 25]
    assert frame.tolist() != [255, 255, 255]
    assert inner.tolist() != [255, 255, 255]
    assert frame.tolist() != inner.tolist()
    assert drawn[85, 35].tolist() == [255, 255, 255]
    assert drawn[110, 80].tolist() == [255, 255, 255]
    # The caption lies above the frame, in the frame's colour.
    assert (drawn[25:40, 12:60] == frame).all(axis=2).any()


def test_a_turned_picture_is_drawn_upright(bident: Bident, server: FakeServer) -> None:
    detector(server)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (120, 100), "white").save("photo.jpg", exif=exif)
    assert bident("run", "detect", "photo.jpg", "--save", "out.jpg", "--url", server.url).code == 0
    assert Image.open("out.jpg").size == (100, 120)


@pytest.mark.parametrize(
    ("boxes", "names"),
    [
        ([[-50, -50, 5000, 5000]], (b"",)),
        ([[99, 119, 100, 120]], ("Käsespätzle mit Röstzwiebeln".encode(),)),
        ([[5, 5, 5, 5]], (b"\xff",)),
    ],
)
def test_any_box_and_any_name_can_be_drawn(
    bident: Bident, server: FakeServer, boxes: list[list[float]], names: tuple[bytes, ...]
) -> None:
    detector(server, boxes, names)
    photo()
    result = bident("run", "detect", "photo.jpg", "--save", "out.png", "--url", server.url)
    assert result.code == 0, result.err
    assert np.asarray(Image.open("out.png")).min() < 200


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("photo.jpg", "photo.jpg", "would overwrite the picture itself"),
        ("photo.jpg", "out.xyz", "not saved as '.xyz'"),
        ("photo.jpg", "out", "not saved as ''"),
        ("photo.jpg", "out.fli", "not saved as '.fli'"),
        ("photo.jpg", "missing/out.png", "No such file or directory"),
        ("notes.txt", "out.png", "neither a picture nor"),
        ("some words", "out.png", "draws into a picture, and INPUT is no file"),
    ],
)
def test_files_that_cannot_be_drawn(bident: Bident, server: FakeServer, source: str, target: str, message: str) -> None:
    detector(server)
    photo()
    Path("notes.txt").write_text("words", encoding="utf-8")
    result = bident("run", "detect", source, "--save", target, "--url", server.url)
    assert result.code == 1
    assert message in result.err


def test_an_answer_without_boxes_cannot_be_drawn(bident: Bident, server: FakeServer) -> None:
    texts(server)
    photo()
    result = bident("run", "texts", "photo.jpg", "--save", "out.png", "--url", server.url)
    assert result.code == 1
    assert "model 'texts' answers with none: it has 'LABEL' BYTES [-1, 1], 'SCORE' FP32 [-1, 1]" in result.err


def test_the_ensemble_that_makes_boxes_of_an_answer_is_named(bident: Bident, server: FakeServer) -> None:
    texts(server)
    detector(server)
    server.models["detect"].config["ensemble_scheduling"] = {"step": [{"model_name": "texts"}]}
    photo()
    result = bident("run", "texts", "photo.jpg", "--save", "out.png", "--url", server.url)
    assert "'SCORE' FP32 [-1, 1]; ask 'detect', built on this model" in result.err


def test_json_of_a_picture_and_its_drawing(bident: Bident, server: FakeServer) -> None:
    detector(server)
    server.models["detect"].answer = lambda tensors: {
        "LABELS": np.array(["cat"]),
        "SCORES": np.array([0.5], np.float32),
        "CLASS_IDS": np.array([15], np.int32),
        "BOXES": np.array(BOXES[:1], np.float32),
    }
    data = photo()
    result = bident("run", "detect", "photo.jpg", "--json", "--save", "out.png", "--url", server.url)
    assert result.code == 0, result.err
    outputs = {output["name"]: output["data"] for output in json.loads(result.out)["outputs"]}
    assert outputs == {"LABELS": ["cat"], "SCORES": [0.5], "CLASS_IDS": [15], "BOXES": [10, 40, 60, 90]}
    assert asked(server).tolist() == [data]
    assert server.asked[-1]["request"]["parameters"]["binary_data_output"] is False
    assert Path("out.png").is_file()


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize(
    "source", ["words to send", '{"inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["x"]}]}']
)
def test_request_parameters(bident: Bident, server: FakeServer, source: str, as_json: list[str]) -> None:
    texts(server)
    server.models["texts"].answer = lambda tensors: {"LABEL": np.array([["A"]]), "SCORE": np.ones((1, 1), np.float32)}
    words = ["-p", "confidence=0.5", "-p", "top_k=3", "--param", "flag=true", "--param", "name=a=b", "-p", "null=null"]
    result = bident("run", "texts", source, *words, *as_json, "--url", server.url)
    assert result.code == 0, result.err
    sent = server.asked[-1]["request"]["parameters"]
    sent.pop("binary_data_output", None)
    assert sent == {"confidence": 0.5, "top_k": 3, "flag": True, "name": "a=b", "null": "null"}


@pytest.mark.parametrize("pair", ["confidence", "=1", ""])
def test_a_parameter_needs_a_name_and_a_value(bident: Bident, server: FakeServer, pair: str) -> None:
    texts(server)
    result = bident("run", "texts", "some words", "-p", pair, "--url", server.url)
    assert result.code == 1
    assert f"--param takes NAME=VALUE; got {pair}" in result.err
