"""A classifier's logits in, its best classes by name out.

Runs on Triton and Bident; needs numpy. Parameters in config.pbtxt: LABELS (a file in the model's folder,
one class name a line) and TOP_K. A request may bring its own ``top_k``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from ranking import best, wanted


class TritonPythonModel:
    """LOGITS to LABEL, SCORE and CLASS_ID, best first."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters and the label file. Raises ValueError that names what is wrong."""
        declared = json.loads(args["model_config"])["parameters"]
        parameters = {name: entry["string_value"] for name, entry in declared.items()}
        labels = Path(args["model_repository"], parameters["LABELS"]).read_text(encoding="utf-8").splitlines()
        self._labels = np.array([label.encode() for label in labels], dtype=object)
        self._count = wanted({"top_k": parameters["TOP_K"]}, 0, len(labels))

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request: as many rankings as its batch has rows."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        logits = pb_utils.get_input_tensor_by_name(request, "LOGITS").as_numpy()
        try:
            if logits.shape[-1] != len(self._labels):
                raise ValueError(
                    f"the network answers {logits.shape[-1]} classes, and there are {len(self._labels)} labels"
                )
            count = wanted(json.loads(request.parameters() or "{}"), self._count, len(self._labels))
        except ValueError as error:
            refusal = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=refusal)
        numbers, shares = best(logits, count)
        outputs = {"LABEL": self._labels[numbers], "SCORE": shares, "CLASS_ID": numbers}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])
