"""What a YOLO network (version 8 and later) answers in, objects out: boxes in pixels of the picture, scores, classes.

Runs on Triton and Bident; needs numpy. Parameters in config.pbtxt: LABELS (a file in the model's folder,
one class name a line), CONFIDENCE, IOU and MAX_DETECTIONS. A request may bring its own ``confidence``,
``iou`` and ``max_detections``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from detections import RANGES, detect, limits


class TritonPythonModel:
    """CANDIDATES and PLACEMENT to BOXES, SCORES, CLASS_IDS and LABELS, best first."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters and the label file. Raises ValueError that names what is wrong."""
        declared = json.loads(args["model_config"])["parameters"]
        parameters = {name: entry["string_value"] for name, entry in declared.items()}
        labels = Path(args["model_repository"], parameters["LABELS"]).read_text(encoding="utf-8").splitlines()
        self._labels = np.array([label.encode() for label in labels], dtype=object)
        self._limits = limits({name: parameters[name.upper()] for name in RANGES}, {})

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request: one picture."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        candidates = pb_utils.get_input_tensor_by_name(request, "CANDIDATES").as_numpy()
        placement = pb_utils.get_input_tensor_by_name(request, "PLACEMENT").as_numpy()
        try:
            asked = limits(json.loads(request.parameters() or "{}"), self._limits)
            boxes, scores, class_ids = detect(candidates, placement, len(self._labels), **asked)
        except ValueError as error:
            refusal = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=refusal)
        outputs = {"BOXES": boxes, "SCORES": scores, "CLASS_IDS": class_ids, "LABELS": self._labels[class_ids]}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])
