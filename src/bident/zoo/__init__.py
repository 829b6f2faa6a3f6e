"""The zoo: sample models that are built or fetched here, each with a question whose answer is known."""

from __future__ import annotations

import difflib

from bident.errors import Code, ServeError
from bident.zoo import (
    classify,
    fraud_xgb,
    imagenet_lite0,
    iris_sklearn,
    iris_zipmap,
    resnet18,
    text_classifier,
    text_classifier_hf,
    yolo_detect,
    yolov8n,
)
from bident.zoo.recipe import BuildResult, Facts, Question, Recipe
from bident.zoo.text_samples import TEXT_SAMPLES, TextSample

__all__ = ["RECIPES", "TEXT_SAMPLES", "BuildResult", "Facts", "Question", "Recipe", "TextSample", "find"]

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        *(module.RECIPE for module in (fraud_xgb, iris_sklearn, iris_zipmap, resnet18, yolov8n, imagenet_lite0)),
        *yolo_detect.RECIPES,
        *classify.RECIPES,
        text_classifier.RECIPE,
        text_classifier_hf.RECIPE,
    )
}
"""Every recipe by name, in the order in which they are shown and built; an ensemble's steps go before it."""


def find(name: str) -> Recipe | TextSample:
    """The sample model called ``name``. Raises NOT_FOUND with the nearest name and all that exist."""
    samples: dict[str, Recipe | TextSample] = {**RECIPES, **TEXT_SAMPLES}
    if name in samples:
        return samples[name]
    near = difflib.get_close_matches(name, samples, 1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise ServeError(Code.NOT_FOUND, f"the zoo has no '{name}'; {hint}It has {', '.join(samples)}")
