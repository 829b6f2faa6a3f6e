"""``text_classifier``: sentiment of English texts by the VADER lexicon, from a wheel on the package index."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from bident.zoo.folder import model_path
from bident.zoo.recipe import Facts, Question, Recipe, Report, Tensors, output, wrong_answer
from bident.zoo.samples import write_sample
from bident.zoo.wheel import WheelFile, unpacked

_REQUIREMENT = "vaderSentiment==3.3.2"
_PACKAGE = "vaderSentiment"
FILES = tuple(
    WheelFile(_REQUIREMENT, member, sha256)
    for member, sha256 in {
        f"{_PACKAGE}/__init__.py": "1b6588094fd98799ff9c1db7101ca7af7d7cd0131fbbe5073be21eace9c98118",
        f"{_PACKAGE}/vaderSentiment.py": "25cd814d23000b41c0e242d99960832c6620b3f1b844469173404500ce63206b",
        f"{_PACKAGE}/vader_lexicon.txt": "1ec9c6e9ee19aade328f8beb393a6afa71a5bb3acf7d3cc22d4ef568df374bf5",
        f"{_PACKAGE}/emoji_utf8_lexicon.txt": "b8d54223ae1ce22a3e12c1f745316b71678c328eb5f5d3063a842f37cfbe2823",
        "vaderSentiment-3.3.2.dist-info/LICENSE.txt": (
            "74cfe41cdbf7f6925aeb4c18c148ec8db042540edb6739fd81069aa4e3c8b118"
        ),
    }.items()
)
"""The package as it was published, and its licence."""

_TOLERANCE = 1e-4

_KNOWN = {
    "This movie is fantastic": ("POSITIVE", 0.7787),
    "Good movie": ("POSITIVE", 0.7202),
    "Bad movie": ("NEGATIVE", 0.77115),
    "Just okay": ("POSITIVE", 0.61315),
}
"""Texts, with the label and the score that VADER 3.3.2 gives them."""


def texts(*words: str) -> Tensors:
    """A request with one text a row: TEXT, BYTES [n, 1]."""
    return {"TEXT": np.array([text.encode() for text in words], dtype=object).reshape(-1, 1)}


def _write(folder: Path, report: Report) -> Facts:
    report("downloading the lexicon", None)
    write_sample(folder, "text_classifier")
    package = model_path(folder, _PACKAGE)
    package.mkdir()
    with unpacked(*FILES) as paths:
        for path in paths:
            shutil.copyfile(path, package / path.name)
    return Facts(synthetic=False, origin=f"{_REQUIREMENT}: MIT (C.J. Hutto)", expected={})


def _question(summary: str, *words: str) -> Question:
    def check(answer: Tensors) -> str:
        shape = (len(words), 1)
        labels, scores = output(answer, "LABEL", shape), output(answer, "SCORE", shape)
        got = [(label.decode(), float(score)) for label, score in zip(labels[:, 0], scores[:, 0], strict=True)]
        for text, (label, score) in zip(words, got, strict=True):
            if label != _KNOWN[text][0] or abs(score - _KNOWN[text][1]) > _TOLERANCE:
                raise wrong_answer(f"{_KNOWN[text]} for '{text}'", str((label, score)))
        return ", ".join(f"{label} {score:.0%}" for label, score in got)

    return Question(summary, lambda: texts(*words), check)


def _questions(_facts: Facts) -> list[Question]:
    return [
        _question("This movie is fantastic", "This movie is fantastic"),
        _question("Good movie / Bad movie / Just okay", "Good movie", "Bad movie", "Just okay"),
    ]


RECIPE = Recipe(
    name="text_classifier",
    summary="sentiment of English texts, by the VADER lexicon",
    backend="python",
    version=1,
    write=_write,
    questions=_questions,
)
