"""``yolo_detect``: a picture's file in, objects out. An ensemble around ``yolov8n``, and its two Python steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.zoo import yolov8n
from bident.zoo.extras import need
from bident.zoo.folder import repository_of
from bident.zoo.photos import photo_file
from bident.zoo.recipe import Facts, Question, Recipe, Report, Tensors, output, wrong_answer
from bident.zoo.reference import run_onnx
from bident.zoo.samples import make_version, write_sample
from bident.zoo.synthetic import member_mark

_SIZE = 640
_CLASSES = 80
_LIMITS = {"confidence": 0.25, "iou": 0.45, "max_detections": 300}
"""As in the configs: what the ensemble answers is computed here once more, without a server."""
_MAX_PIXELS = 64_000_000
_PLACEMENT = [0.0, 0.0, 0.8, 0.8, 512.0, 512.0]
"""The portrait is 512 pixels wide and high, and fills the square."""
_PICTURE_TOLERANCE = 0.01
_BOX_TOLERANCE = 2.0


def _portrait() -> Tensors:
    return {"IMAGE": np.array([photo_file("astronaut.png")], dtype=object)}


def _letterboxed() -> tuple[NDArray[Any], NDArray[Any]]:
    need("PIL.Image")
    from bident.zoo.models.pictures import Picture
    from bident.zoo.models.yolo_preprocess.letterbox import letterbox

    return letterbox(Picture(photo_file("astronaut.png"), _MAX_PIXELS), _SIZE)


def _write_preprocess(folder: Path, _report: Report) -> Facts:
    pixels, _ = _letterboxed()
    write_sample(folder, "yolo_preprocess", beside=("pictures.py",))
    return Facts(synthetic=False, origin="no weights", expected={"mean": float(pixels.mean())})


def _preprocess_questions(facts: Facts) -> list[Question]:
    def check(answer: Tensors) -> str:
        pixels, placement = output(answer, "PIXELS", (3, _SIZE, _SIZE)), output(answer, "PLACEMENT", (6,))
        mean = float(pixels.mean())
        if not (pixels.min() >= 0 and pixels.max() <= 1 and abs(mean - facts.expected["mean"]) < _PICTURE_TOLERANCE):
            raise wrong_answer(f"pixels from 0 to 1 around {facts.expected['mean']:.3f}", f"{mean:.3f}")
        if not np.allclose(placement, _PLACEMENT):
            raise wrong_answer(f"the placement {_PLACEMENT}", str(placement.tolist()))
        return f"{_SIZE} x {_SIZE} pixels"

    return [Question("photo of a person", _portrait, check)]


def _write_postprocess(folder: Path, _report: Report) -> Facts:
    write_sample(folder, "yolo_postprocess")
    return Facts(synthetic=False, origin="no weights; the names of COCO's 80 classes", expected={})


def _candidates() -> Tensors:
    """A person twice, a dog in front of it, and too little of a cat, in a picture of 1280 x 960 pixels."""
    table = np.zeros((4 + _CLASSES, 4), np.float32)
    table[:4] = np.array([[320, 320, 100, 200], [322, 320, 100, 200], [320, 330, 100, 180], [90, 90, 20, 20]]).T
    for column, (class_id, score) in enumerate([(0, 0.9), (0, 0.8), (16, 0.7), (15, 0.1)]):
        table[4 + class_id, column] = score
    return {"CANDIDATES": table, "PLACEMENT": np.array([0, 80, 2, 2, 1280, 960], np.float32)}


def _postprocess_questions(_facts: Facts) -> list[Question]:
    wanted = [
        {"label": "person", "class": 0, "score": 0.9, "box": [540, 280, 740, 680]},
        {"label": "dog", "class": 16, "score": 0.7, "box": [540, 320, 740, 680]},
    ]
    return [Question("four candidates", _candidates, lambda answer: _check(answer, wanted, named=True))]


def _write(folder: Path, _report: Report) -> Facts:
    repository = repository_of(folder)
    network = yolov8n.RECIPE.built(repository)
    synthetic = network is not None and network.synthetic
    write_sample(folder, "yolo_detect", mark=member_mark("yolov8n") if synthetic else "")
    make_version(folder)
    found = _found(repository)
    if not synthetic and "person" not in [each["label"] for each in found]:
        raise wrong_answer("a person in the portrait", str(found))
    origin = f"yolov8n: {network.origin}" if network else ""
    return Facts(synthetic=synthetic, origin=origin, expected={"found": found})


def _found(repository: Path) -> list[dict[str, Any]]:
    """What the three steps find in the portrait, one after the other in this process."""
    from bident.zoo.models.yolo_postprocess.detections import detect

    pixels, placement = _letterboxed()
    candidates = run_onnx(repository / "yolov8n" / "1" / "model.onnx", {"images": pixels[None]})["output0"]
    boxes, scores, class_ids = detect(candidates, placement, _CLASSES, **_LIMITS)
    names = (repository / "yolo_postprocess" / "labels.txt").read_text(encoding="utf-8").splitlines()
    return [
        {"label": names[class_id], "class": class_id, "score": score, "box": box}
        for box, score, class_id in zip(boxes.tolist(), scores.tolist(), class_ids.tolist(), strict=True)
    ]


def _questions(facts: Facts) -> list[Question]:
    def check(answer: Tensors) -> str:
        return _check(answer, facts.expected["found"], named=not facts.synthetic)

    return [Question("photo of a person", _portrait, check)]


def _check(answer: Tensors, wanted: list[dict[str, Any]], *, named: bool) -> str:
    """The objects in a few words. Raises the wrong-answer error if they are not those that are ``wanted``."""
    count = len(wanted)
    boxes, scores = output(answer, "BOXES", (count, 4)), output(answer, "SCORES", (count,))
    class_ids, labels = output(answer, "CLASS_IDS", (count,)), output(answer, "LABELS", (count,))
    got = [str(label.decode()) for label in labels]
    if got != [each["label"] for each in wanted] or class_ids.tolist() != [each["class"] for each in wanted]:
        raise wrong_answer(f"{[each['label'] for each in wanted]}", f"{got} (classes {class_ids.tolist()})")
    if not np.allclose(scores, [each["score"] for each in wanted], atol=_PICTURE_TOLERANCE):
        raise wrong_answer(f"scores {[round(each['score'], 2) for each in wanted]}", str(scores.tolist()))
    if count and not np.allclose(boxes, [each["box"] for each in wanted], atol=_BOX_TOLERANCE):
        raise wrong_answer(f"boxes {[each['box'] for each in wanted]}", str(boxes.tolist()))
    names = got if named else [f"class {class_id}" for class_id in class_ids.tolist()]
    return ", ".join(f"{name} {score:.0%}" for name, score in zip(names, scores.tolist(), strict=True)) or "nothing"


PREPROCESS = Recipe(
    name="yolo_preprocess",
    summary="first step of yolo_detect: file to pixels",
    backend="python",
    version=2,
    write=_write_preprocess,
    questions=_preprocess_questions,
    has_weights=False,
)
POSTPROCESS = Recipe(
    name="yolo_postprocess",
    summary="last step of yolo_detect: candidates to objects",
    backend="python",
    version=1,
    write=_write_postprocess,
    questions=_postprocess_questions,
    has_weights=False,
)
RECIPE = Recipe(
    name="yolo_detect",
    summary="picture to boxes, with yolov8n",
    backend="ensemble",
    version=1,
    write=_write,
    questions=_questions,
    may_be_synthetic=True,
    members=(PREPROCESS, yolov8n.RECIPE, POSTPROCESS),
)
RECIPES = (PREPROCESS, POSTPROCESS, RECIPE)
