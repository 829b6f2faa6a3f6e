"""The detector's peer: the served files' own steps, in the fastest arrangement."""

import io
import json
import sys
import time

import numpy as np
import pytest
from PIL import Image

from benchmarks import detect_bench
from benchmarks.peers.detect_in_process import load_model_file, parameters


def test_a_model_file_is_imported_with_its_neighbours(tmp_path):
    version = tmp_path / "sample" / "1"
    version.mkdir(parents=True)
    (version / "bench_neighbour.py").write_text("ANSWER = 42\n")
    (version / "model.py").write_text(
        "import triton_python_backend_utils as pb_utils\nfrom bench_neighbour import ANSWER\nTensor = pb_utils.Tensor\n"
    )
    path = sys.path.copy()
    module = load_model_file(tmp_path / "sample")
    assert module.ANSWER == 42
    assert module.Tensor("OUT", np.ones(2, np.float32)).name() == "OUT"
    assert sys.path == path


def test_parameters_are_read_from_the_config(tmp_path):
    (tmp_path / "config.pbtxt").write_text('parameters { key: "IOU" value { string_value: "0.7" } }')
    assert parameters(tmp_path) == {"IOU": "0.7"}


class Steps:
    """Takes ``alone`` seconds for one picture and ``together`` seconds for a batch."""

    def __init__(self, alone, together):
        self.alone, self.batch, self.calls = alone, together, []

    def one(self, photo):
        self.calls.append("one")
        time.sleep(self.alone)

    def together(self, photos):
        self.calls.append(len(photos))
        time.sleep(self.batch)


@pytest.mark.parametrize(("steps", "chosen"), [(Steps(0.02, 0.001), {4}), (Steps(0.001, 0.02), {"one"})])
def test_several_clients_are_compared_with_the_fastest_way(steps, chosen):
    turn = detect_bench.best(steps, b"photo", 4, 8)
    steps.calls.clear()
    assert turn() > 0
    assert set(steps.calls) == chosen
    assert sum(1 if call == "one" else call for call in steps.calls) == 8


def test_one_client_is_compared_with_one_picture_after_the_other():
    steps = Steps(0.001, 0)
    detect_bench.best(steps, b"photo", 1, 3)()
    assert set(steps.calls) == {"one"}


def test_the_request_carries_the_photo_as_one_element():
    photo = detect_bench.picture()
    with Image.open(io.BytesIO(photo)) as image:
        assert (image.format, image.size) == ("JPEG", (640, 480))
    headers, body = detect_bench.request(photo)
    split = int(headers["Inference-Header-Content-Length"])
    (tensor,) = json.loads(body[:split])["inputs"]
    element = body[split:]
    assert tensor["parameters"]["binary_data_size"] == len(element)
    assert int.from_bytes(element[:4], "little") == len(photo)
    assert element[4:] == photo


FOUND = (
    np.array([[1, 2, 30, 40]], np.float32),
    np.array([0.5], np.float32),
    np.array([7], np.int32),
    np.array([b"truck"], object),
)


def answer(box, label):
    outputs = [
        {"name": "BOXES", "shape": [1, 4], "data": box},
        {"name": "SCORES", "shape": [1], "data": [0.5]},
        {"name": "CLASS_IDS", "shape": [1], "data": [7]},
        {"name": "LABELS", "shape": [1], "data": [label]},
    ]
    return json.dumps({"outputs": outputs}).encode()


def test_the_same_objects_are_accepted(monkeypatch):
    monkeypatch.setattr(detect_bench, "ask", lambda *request: answer([1, 2, 30, 40], "truck"))
    detect_bench.check_answer(None, b"photo", FOUND)


@pytest.mark.parametrize(("box", "label"), [([1, 2, 30, 41], "truck"), ([1, 2, 30, 40], "car")])
def test_other_objects_are_no_answer(monkeypatch, box, label):
    monkeypatch.setattr(detect_bench, "ask", lambda *request: answer(box, label))
    with pytest.raises(AssertionError, match=r"BOXES|LABELS"):
        detect_bench.check_answer(None, b"photo", FOUND)


def test_a_picture_without_objects_is_no_measure(monkeypatch):
    monkeypatch.setattr(detect_bench, "ask", lambda *request: b'{"outputs": []}')
    with pytest.raises(RuntimeError, match="nothing is found"):
        detect_bench.check_answer(None, b"photo", tuple(array[:0] for array in FOUND))
