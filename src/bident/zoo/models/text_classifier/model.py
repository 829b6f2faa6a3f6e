"""Texts in, their sentiment out: POSITIVE, NEGATIVE or NEUTRAL, by the VADER lexicon.

Runs on Triton and Bident; needs numpy. The folder ``vaderSentiment`` beside this file is the package of
that name as it was published, lexicon and licence included.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

# VADER's authors draw the line here: a compound score (-1 to 1) nearer to zero is neutral.
NEUTRAL_WITHIN = 0.05
# VADER's time grows with the square of the number of words: some 50 ms for 4096 bytes of prose, seconds for
# as many of emoji. The instance serves nobody else meanwhile, so longer texts are refused; send sentences.
MAX_BYTES = 4096


class TritonPythonModel:
    """TEXT to LABEL and SCORE."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the lexicon."""
        self._analyzer = SentimentIntensityAnalyzer()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request: as many labels and scores as it has texts."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        try:
            judged = [self._judge(decoded(row, text)) for row, text in enumerate(texts.reshape(-1))]
        except ValueError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
        labels = np.array([label for label, _ in judged], dtype=object).reshape(texts.shape)
        scores = np.array([score for _, score in judged], dtype=np.float32).reshape(texts.shape)
        return pb_utils.InferenceResponse([pb_utils.Tensor("LABEL", labels), pb_utils.Tensor("SCORE", scores)])

    def _judge(self, text: str) -> tuple[str, float]:
        """The label, and how sure it is: 0.5 to 1."""
        compound = self._analyzer.polarity_scores(text)["compound"]
        if abs(compound) < NEUTRAL_WITHIN:
            return "NEUTRAL", 1 - abs(compound)
        return "POSITIVE" if compound > 0 else "NEGATIVE", (1 + abs(compound)) / 2


def decoded(row: int, text: bytes) -> str:
    """The text of a row. Raises ValueError when it is too long or not UTF-8."""
    if len(text) > MAX_BYTES:
        raise ValueError(f"TEXT[{row}] has {len(text)} bytes, more than the {MAX_BYTES} that are allowed")
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"TEXT[{row}] is not UTF-8: {error.reason} at byte {error.start}") from error
