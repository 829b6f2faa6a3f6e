"""``resnet18``: the ONNX Model Zoo's image classifier, or its architecture with seeded weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bident.errors import ServeError
from bident.zoo.download import RemoteFile, fetch
from bident.zoo.folder import model_path, write_config
from bident.zoo.recipe import Facts, Question, Recipe, Report, Tensors, output, wrong_answer
from bident.zoo.reference import run_onnx
from bident.zoo.synthetic import CONFIG_MARK

MODEL = RemoteFile(
    url="https://github.com/onnx/models/raw/main/validated/vision/classification/resnet/model/resnet18-v1-7.onnx",
    size=46_820_737,
    sha256="4e8f8653e7a2222b3904cc3fe8e304cd8b339ce1d05fd24688162f86fb6df52c",
)
_ZERO_IMAGE_CLASS = 623
_SEED = 18

_CONFIG = """
# Image classification: ResNet-18 v1 in the ONNX Model Zoo's form. RGB, 0 to 1, then normalized with
# mean (0.485, 0.456, 0.406) and standard deviation (0.229, 0.224, 0.225); answers 1000 logits.
backend: "onnxruntime"
max_batch_size: 16
input  [ { name: "data", data_type: TYPE_FP32, dims: [ 3, 224, 224 ] } ]
output [ { name: "resnetv15_dense0_fwd", data_type: TYPE_FP32, dims: [ 1000 ] } ]
instance_group [ { count: 1, kind: KIND_CPU } ]
# Batches of 4 or 8 are worth waiting for, up to 3 ms, while more requests are on their way.
dynamic_batching { preferred_batch_size: [ 4, 8 ], max_queue_delay_microseconds: 3000 }
"""


def _write(folder: Path, report: Report) -> Facts:
    path = model_path(folder, "model.onnx")
    try:
        fetch(MODEL, path, report)
    except ServeError as unreachable:
        return _write_synthetic(folder, path, report, unreachable.message)
    write_config(folder, _CONFIG)
    if (got := _top_class(run_onnx(path, _zeros()))) != _ZERO_IMAGE_CLASS:
        raise wrong_answer(f"class {_ZERO_IMAGE_CLASS} for the zero image", f"class {got}")
    return Facts(synthetic=False, origin=f"{MODEL.url} (Apache-2.0)", expected={"class": _ZERO_IMAGE_CLASS})


def _write_synthetic(folder: Path, path: Path, report: Report, reason: str) -> Facts:
    from bident.zoo.networks import resnet18

    report("building the architecture with seeded weights", None)
    resnet18.save_synthetic(path, _SEED)
    write_config(folder, _CONFIG + CONFIG_MARK)
    expected = {"class": _top_class(run_onnx(path, _zeros()))}
    return Facts(synthetic=True, origin=f"weights from seed {_SEED}, because: {reason}", expected=expected)


def _zeros() -> Tensors:
    return {"data": np.zeros((1, 3, 224, 224), np.float32)}


def _top_class(answer: Tensors) -> int:
    return int(output(answer, "resnetv15_dense0_fwd", (1, 1000))[0].argmax())


def _questions(facts: Facts) -> list[Question]:
    expected: int = facts.expected["class"]

    def check(answer: Tensors) -> str:
        if (got := _top_class(answer)) != expected:
            raise wrong_answer(f"class {expected}", f"class {got}")
        return f"class {got}"

    return [Question("zero image", _zeros, check)]


RECIPE = Recipe(
    name="resnet18",
    summary="image classifier ResNet-18",
    backend="onnxruntime",
    version=1,
    write=_write,
    questions=_questions,
    may_be_synthetic=True,
)
