"""``text_classifier_hf``: any text classifier of Hugging Face, by its name on the hub or as a local folder."""

from __future__ import annotations

from pathlib import Path

from bident.zoo.recipe import Facts, Question, Recipe, Report, Tensors, output, wrong_answer
from bident.zoo.samples import write_sample
from bident.zoo.text_classifier import texts

_TEXTS = ("Good movie", "Bad movie", "Just okay")


def _write(folder: Path, _report: Report) -> Facts:
    write_sample(folder, "text_classifier_hf")
    return Facts(synthetic=False, origin="the model that MODEL in config.pbtxt names", expected={})


def _questions(_facts: Facts) -> list[Question]:
    def check(answer: Tensors) -> str:
        shape = (len(_TEXTS), 1)
        labels, scores = output(answer, "LABEL", shape)[:, 0], output(answer, "SCORE", shape)[:, 0]
        if not all(labels):
            raise wrong_answer("a label for each text", str(labels.tolist()))
        if not all(0 < score <= 1 for score in scores):
            raise wrong_answer("probabilities", str(scores.tolist()))
        return ", ".join(f"{label.decode()} {score:.0%}" for label, score in zip(labels, scores, strict=True))

    return [Question(" / ".join(_TEXTS), lambda: texts(*_TEXTS), check)]


RECIPE = Recipe(
    name="text_classifier_hf",
    summary="text classifier of Hugging Face, by name or folder",
    backend="python",
    version=1,
    write=_write,
    questions=_questions,
    in_all=False,
    needs=("torch", "transformers"),
    fetches_weights=True,
)
"""Its owner chooses the model, so what every classifier has to answer is all that can be asked."""
