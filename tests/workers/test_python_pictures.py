"""The zoo's picture models in real workers: JPEG and PNG in, boxes and names out."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from PIL import Image
from worker_driving import Driver, spec_of

from bident.backends.python.messages import Request
from bident.errors import Code
from bident.model import pbtxt
from bident.zoo import RECIPES
from bident.zoo.photos import photo_file
from bident.zoo.reference import run_onnx
from bident.zoo.wheel import WheelFile, unpacked

FACES = WheelFile(
    requirement="nudenet==3.4.2",
    member="nudenet/320n.onnx",
    sha256="c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f",
)
"""A trained network of YOLOv8's architecture. Its weights are AGPL-3.0: they are used here, and go nowhere."""

FACE = (175, 70, 275, 190)
"""Where a person looking at the photo sees the astronaut's face: from hair to chin, from ear to ear."""


def start(folder: Path) -> Driver:
    path = folder / "config.pbtxt"
    config = pbtxt.parse(path.read_bytes(), str(path))
    return Driver(spec_of(folder, config=json_format.MessageToDict(config, preserving_proto_field_name=True)))


def built(name: str, target: Path, **parameters: str) -> Path:
    """The sample model, with parameters of its config changed as a user would: in the file."""
    folder = RECIPES[name].build(target).folder
    path = folder / "config.pbtxt"
    config = pbtxt.parse(path.read_bytes(), str(path))
    for parameter, value in parameters.items():
        config.parameters[parameter].string_value = value
    path.write_text(str(config), encoding="utf-8")
    return folder


def ask(driver: Driver, parameters: dict[str, Any] | None = None, **inputs: Any) -> Any:
    (reply,) = driver.run(Request(inputs=inputs, parameters=parameters))
    return reply


def files(*contents: bytes) -> Any:
    return np.array(contents, dtype=object)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    target = tmp_path_factory.mktemp("pictures")
    names = ("yolo_preprocess", "yolo_postprocess", "classify_preprocess", "classify_postprocess")
    drivers = {name: start(built(name, target)) for name in names}
    yield drivers
    for driver in drivers.values():
        driver.worker.close()


def iou(one: Any, two: Any) -> float:
    left, top = max(one[0], two[0]), max(one[1], two[1])
    right, bottom = min(one[2], two[2]), min(one[3], two[3])
    both = max(right - left, 0) * max(bottom - top, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, two)]
    return float(both / (sum(areas) - both))


@pytest.fixture(scope="module")
def face_finder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The steps around a network of another size and other classes than YOLOv8n's, and that network's file."""
    target = tmp_path_factory.mktemp("faces")
    before = start(built("yolo_preprocess", target, INPUT_SIZE="320"))
    folder = built("yolo_postprocess", target, LABELS="parts.txt")
    labels = ["face" if number == 1 else f"part {number}" for number in range(18)]
    (folder / "parts.txt").write_text("\n".join(labels), encoding="utf-8")
    after = start(folder)
    with unpacked(FACES) as (network,):
        yield before, network, after
    before.worker.close()
    after.worker.close()


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "turned JPEG", "wide PNG"])
def test_a_trained_network_finds_the_astronauts_face(face_finder: Any, kind: str, rows: bool) -> None:
    before, network, after = face_finder
    photo, face = picture(kind)
    prepared = ask(before, IMAGE=files(photo)).outputs
    (candidates,) = run_onnx(network, {"images": prepared["PIXELS"][None]}).values()
    assert candidates.shape == (1, 22, 2100)
    layout = np.ascontiguousarray(candidates[0].T) if rows else candidates[0]
    found = ask(after, CANDIDATES=layout, PLACEMENT=prepared["PLACEMENT"]).outputs
    assert found["LABELS"][0] == b"face"
    assert found["CLASS_IDS"][0] == 1
    assert found["SCORES"][0] > 0.5
    assert iou(found["BOXES"][0], face) >= 0.5


def picture(kind: str) -> tuple[bytes, tuple[float, ...]]:
    """The astronaut as a file of some kind, and where the face is in it when held upright."""
    original = photo_file("astronaut.png")
    if kind == "PNG":
        return original, FACE
    image, options, face = Image.open(io.BytesIO(original)).convert("RGB"), {}, FACE
    if kind == "turned JPEG":
        exif = Image.Exif()
        exif[0x0112] = 6
        image, options = image.transpose(Image.Transpose.ROTATE_90), {"exif": exif}
    if kind == "wide PNG":
        wide = Image.new("RGB", (900, 600), "navy")
        wide.paste(image, (300, 50))
        image, face = wide, (FACE[0] + 300, FACE[1] + 50, FACE[2] + 300, FACE[3] + 50)
    file = io.BytesIO()
    image.save(file, kind.rsplit(maxsplit=1)[-1], **options)
    return file.getvalue(), face


@pytest.mark.parametrize("model", ["yolo_preprocess", "classify_preprocess"])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"hello", "neither JPEG nor PNG"),
        (b"", "neither JPEG nor PNG"),
        (b"/9j/4AA", "base64"),
        (photo_file("astronaut.png")[:50_000], "damaged"),
    ],
)
def test_what_is_no_picture_is_refused_as_the_clients_mistake(
    models: dict[str, Driver], model: str, data: bytes, reason: str
) -> None:
    rows = files(data).reshape(1, 1) if model == "classify_preprocess" else files(data)
    reply = ask(models[model], IMAGE=rows)
    assert reply.error is not None
    assert reply.error.code is Code.INVALID_ARG
    assert "the picture in 'IMAGE'" in reply.error.message
    assert reason in reply.error.message
    assert ask(models["yolo_preprocess"], IMAGE=files(photo_file("astronaut.png"))).error is None


def two_people() -> dict[str, Any]:
    table = np.zeros((84, 3), np.float32)
    table[:4] = np.array([[100, 100, 50, 50], [110, 100, 50, 50], [300, 300, 80, 80]]).T
    table[4] = [0.9, 0.6, 0.4]
    return {"CANDIDATES": table, "PLACEMENT": np.array([0, 0, 1, 1, 640, 640], np.float32)}


@pytest.mark.parametrize(
    ("parameters", "scores"),
    [
        (None, [0.9, 0.4]),
        ({"confidence": 0.5}, [0.9]),
        ({"confidence": "0.95"}, []),
        ({"iou": 0.9}, [0.9, 0.6, 0.4]),
        ({"max_detections": 1}, [0.9]),
        ({"something": "else"}, [0.9, 0.4]),
    ],
)
def test_a_request_may_bring_its_own_limits(
    models: dict[str, Driver], parameters: dict[str, Any] | None, scores: list[float]
) -> None:
    found = ask(models["yolo_postprocess"], parameters, **two_people()).outputs
    np.testing.assert_allclose(found["SCORES"], np.array(scores, np.float32))
    assert found["BOXES"].shape == (len(scores), 4)
    assert found["LABELS"].tolist() == [b"person"] * len(scores)


def test_impossible_limits_and_foreign_candidates_are_the_clients_mistake(models: dict[str, Driver]) -> None:
    refused = ask(models["yolo_postprocess"], {"iou": 2}, **two_people()).error
    assert (refused.code, refused.message) == (Code.INVALID_ARG, "iou is 2; it takes a number from 0 to 1")
    foreign = {**two_people(), "CANDIDATES": np.zeros((22, 2100), np.float32)}
    assert "with 80 labels one side must be 84" in ask(models["yolo_postprocess"], **foreign).error.message


def test_a_batch_of_pictures_is_classified_row_by_row(models: dict[str, Driver]) -> None:
    cat, person = photo_file("chelsea.png"), photo_file("astronaut.png")
    both = ask(models["classify_preprocess"], IMAGE=files(cat, person).reshape(2, 1)).outputs["PIXELS"]
    assert both.shape == (2, 3, 224, 224)
    one = ask(models["classify_preprocess"], IMAGE=files(person).reshape(1, 1)).outputs["PIXELS"]
    np.testing.assert_array_equal(both[1:], one)
    refused = ask(models["classify_preprocess"], IMAGE=files(cat, b"no").reshape(2, 1)).error
    assert "'IMAGE', row 1" in refused.message


def test_the_pictures_of_a_request_are_counted_together(models: dict[str, Driver]) -> None:
    """Sixteen small files can be a minute's work, in which nobody else is served."""
    file = io.BytesIO()
    Image.new("L", (5000, 5000)).save(file, "PNG", compress_level=1)
    allowed = ask(models["classify_preprocess"], IMAGE=files(*[file.getvalue()] * 2).reshape(2, 1))
    assert allowed.outputs["PIXELS"].shape == (2, 3, 224, 224)
    refused = ask(models["classify_preprocess"], IMAGE=files(*[file.getvalue()] * 3).reshape(3, 1)).error
    assert refused.code is Code.INVALID_ARG
    assert refused.message == (
        "the 3 pictures in 'IMAGE' have 75000000 pixels together, and at most 64000000 are taken in one request "
        "(parameter MAX_PIXELS): send fewer at a time, or scale them down"
    )


def test_top_k(models: dict[str, Driver]) -> None:
    logits = np.zeros((2, 1000), np.float32)
    logits[0, 285] = logits[1, 7] = 9
    found = ask(models["classify_postprocess"], {"top_k": 1}, LOGITS=logits).outputs
    assert found["LABEL"].tolist() == [[b"Egyptian cat"], [b"cock"]]
    assert found["CLASS_ID"].tolist() == [[285], [7]]
    assert ask(models["classify_postprocess"], LOGITS=logits).outputs["LABEL"].shape == (2, 5)
    assert "top_k is 0" in ask(models["classify_postprocess"], {"top_k": 0}, LOGITS=logits).error.message
