"""What a model does with the sum of its trees, in numpy (GTIL's formulas, in float32)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bident.backends.fil.forest import Postprocess

Scores = NDArray[np.float32]


def _softmax(margins: Scores, _: Postprocess) -> Scores:
    powers: Scores = np.exp(margins - margins.max(axis=1, keepdims=True))
    shares: Scores = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _sigmoid(margins: Scores, how: Postprocess) -> Scores:
    # exp overflows to inf below -88 / alpha, whose reciprocal is the right answer: 0.
    with np.errstate(over="ignore"):
        powers: Scores = np.exp(np.float32(-how.sigmoid_alpha) * margins)
    probabilities: Scores = np.reciprocal(np.float32(1) + powers)
    return probabilities


POSTPROCESSORS: dict[str, Callable[[Scores, Postprocess], Scores]] = {
    "identity": lambda margins, _: margins,
    "identity_multiclass": lambda margins, _: margins,
    "sigmoid": _sigmoid,
    "multiclass_ova": _sigmoid,
    "softmax": _softmax,
    "exponential": lambda margins, _: np.exp(margins),
    "signed_square": lambda margins, _: margins * np.abs(margins),
    "hinge": lambda margins, _: (margins > 0).astype(np.float32),
    "logarithm_one_plus_exp": lambda margins, _: np.logaddexp(margins, np.float32(0)),
    "exponential_standard_ratio": lambda margins, how: np.exp2(margins * np.float32(-1 / how.ratio_c)),
}
"""Treelite's name -> margins [N, classes] to scores of the same shape."""
