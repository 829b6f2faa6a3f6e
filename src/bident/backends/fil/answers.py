"""From scores to what the client asked for: the class, the probability, or both classes' probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray


class Kind(Enum):
    """What ``output__0`` says about a row."""

    SCORES = "the scores as they are"
    ABOVE_THRESHOLD = "1.0 if the score is above the threshold, else 0.0"
    BOTH_CLASSES = "1 - p and p"
    LARGEST = "the index of the largest score"


@dataclass(frozen=True)
class Answer:
    """One way to turn scores [N, classes] into ``output__0`` [N, ``width``]."""

    kind: Kind
    width: int
    threshold: float = 0.5

    def of(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Answer ``scores`` as Triton does.

        The threshold is exclusive; the largest score is looked for among the positive ones, so
        the first class is the answer where there is none, and where several are equally large.
        """
        if self.kind is Kind.ABOVE_THRESHOLD:
            return (scores > np.float32(self.threshold)).astype(np.float32)
        if self.kind is Kind.BOTH_CLASSES:
            return np.concatenate([np.float32(1) - scores, scores], axis=1)
        if self.kind is Kind.LARGEST:
            first: NDArray[np.intp] = np.fmax(scores, np.float32(0)).argmax(axis=1, keepdims=True)
            return first.astype(np.float32)
        return scores
