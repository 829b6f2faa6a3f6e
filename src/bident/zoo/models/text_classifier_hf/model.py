"""Texts in, labels out, by any text classifier of Hugging Face: the model that MODEL in config.pbtxt names.

Runs on Triton and Bident; needs numpy, torch and transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

try:
    import torch  # noqa: F401 - what transformers computes with; without it, its own error comes late
    from transformers import pipeline
except ImportError as error:
    raise ImportError(
        f"{error}: pip install torch transformers, into the Python that runs this model "
        "(the server's, or the one that EXECUTION_ENV_PATH in config.pbtxt names)"
    ) from error


class TritonPythonModel:
    """TEXT to LABEL and SCORE."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer and the model; one from the hub is downloaded first, unless it is in the cache."""
        name = json.loads(args["model_config"])["parameters"]["MODEL"]["string_value"]
        folder = Path(args["model_repository"], name)  # an absolute path stays what it is
        model = str(folder) if folder.is_dir() else name
        # device=-1: the processor; 0 is the first GPU. A text longer than the model can read is cut short.
        self._classifier = pipeline("text-classification", model=model, device=-1, truncation=True)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request: as many labels and scores as it has texts."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        try:
            results = self._classifier([text.decode("utf-8") for text in texts.reshape(-1)])
        except UnicodeDecodeError as error:
            message = f"TEXT is not UTF-8: {error.reason} at byte {error.start} of {error.object[:32]!r}"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))
        labels = np.array([result["label"] for result in results], dtype=object).reshape(texts.shape)
        scores = np.array([result["score"] for result in results], dtype=np.float32).reshape(texts.shape)
        return pb_utils.InferenceResponse([pb_utils.Tensor("LABEL", labels), pb_utils.Tensor("SCORE", scores)])

    def finalize(self) -> None:
        """Let go of the model."""
        self._classifier = None
