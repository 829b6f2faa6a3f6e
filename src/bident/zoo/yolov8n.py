"""``yolov8n``: Ultralytics' small object detector, or its architecture with seeded weights."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bident.errors import Code, ServeError
from bident.zoo.folder import model_path, write_config
from bident.zoo.photos import photo
from bident.zoo.recipe import Facts, Question, Recipe, Report, Tensors, output, wrong_answer
from bident.zoo.reference import run_onnx
from bident.zoo.synthetic import CONFIG_MARK

_SEED = 7
_PERSON = 0
_CELLS = 8400
_EXPORT_TIMEOUT_S = 120
_EXPORT = "from ultralytics import YOLO; YOLO('yolov8n.pt').export(format='onnx', opset=17, dynamic=True)"

_CONFIG = """
# Object detection: YOLOv8n. RGB, 0 to 1, 640 x 640 pixels. Answers 8400 candidate boxes, one a column:
# centre x, centre y, width and height in pixels, then the scores of the 80 COCO classes. Overlapping
# candidates are still to be thinned out (non-maximum suppression).
backend: "onnxruntime"
max_batch_size: 8
input  [ { name: "images",  data_type: TYPE_FP32, dims: [ 3, 640, 640 ] } ]
output [ { name: "output0", data_type: TYPE_FP32, dims: [ 84, 8400 ] } ]
instance_group [ { count: 1, kind: KIND_CPU } ]
dynamic_batching { max_queue_delay_microseconds: 5000 }
"""


def _write(folder: Path, report: Report) -> Facts:
    path = model_path(folder, "model.onnx")
    try:
        _export(path, report)
    except ServeError as unavailable:
        return _write_synthetic(folder, path, report, unavailable.message)
    write_config(folder, _CONFIG)
    best, _ = _best(run_onnx(path, _portrait()))
    if best != _PERSON:
        raise wrong_answer("a person in the portrait", f"class {best}")
    return Facts(synthetic=False, origin="exported by ultralytics (weights: AGPL-3.0)", expected={"class": _PERSON})


def _export(path: Path, report: Report) -> None:
    """Let an installed ultralytics export its weights, in a process and a folder of its own."""
    if importlib.util.find_spec("ultralytics") is None:
        raise ServeError(Code.UNAVAILABLE, "the package 'ultralytics' is not installed")
    report("exporting with ultralytics", None)
    environment = {**os.environ, "YOLO_AUTOINSTALL": "false"}
    with tempfile.TemporaryDirectory(prefix="bident-yolo-") as room:
        command = [sys.executable, "-c", _EXPORT]
        try:
            done = subprocess.run(
                command, cwd=room, env=environment, capture_output=True, timeout=_EXPORT_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ServeError(Code.UNAVAILABLE, f"ultralytics did not finish in {_EXPORT_TIMEOUT_S} s") from error
        exported = Path(room, "yolov8n.onnx")
        if done.returncode != 0 or not exported.is_file():
            cause = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise ServeError(Code.UNAVAILABLE, f"ultralytics could not export yolov8n.pt: {cause[0]}")
        path.write_bytes(exported.read_bytes())


def _write_synthetic(folder: Path, path: Path, report: Report, reason: str) -> Facts:
    from bident.zoo.networks import yolov8n

    report("building the architecture with seeded weights", None)
    yolov8n.save_synthetic(path, _SEED)
    write_config(folder, _CONFIG + CONFIG_MARK)
    best, score = _best(run_onnx(path, _portrait()))
    return Facts(
        synthetic=True,
        origin=f"weights from seed {_SEED}, because: {reason}",
        expected={"class": best, "score": score},
    )


def _portrait() -> Tensors:
    return {"images": photo("astronaut.png", 640)[None] / np.float32(255)}


def _best(answer: Tensors) -> tuple[int, float]:
    """The class and score of the surest candidate. Raises the wrong-answer error for impossible numbers."""
    scores = output(answer, "output0", (1, 84, _CELLS))[0, 4:]
    if not np.isfinite(answer["output0"]).all() or scores.min() < 0 or scores.max() > 1 + 1e-5:
        raise wrong_answer("finite boxes and scores from 0 to 1", f"scores {scores.min()} to {scores.max()}")
    best = int(scores.max(axis=1).argmax())
    return best, float(scores[best].max())


def _questions(facts: Facts) -> list[Question]:
    def check(answer: Tensors) -> str:
        best, score = _best(answer)
        wanted = facts.expected["class"], facts.expected.get("score", score)
        if best != wanted[0] or abs(score - wanted[1]) > 0.01:
            raise wrong_answer(f"class {wanted[0]} at {wanted[1]:.2f}", f"class {best} at {score:.2f}")
        name = "person" if not facts.synthetic else f"class {best}"
        return f"{name} {score:.0%}, {_CELLS} candidates"

    return [Question("photo of a person", _portrait, check)]


RECIPE = Recipe(
    name="yolov8n",
    summary="object detector YOLOv8n",
    backend="onnxruntime",
    version=1,
    write=_write,
    questions=_questions,
    may_be_synthetic=True,
)
