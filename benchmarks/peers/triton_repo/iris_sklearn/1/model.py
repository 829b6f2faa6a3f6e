"""iris_sklearn for Triton's Python backend: the batch Triton forms runs as one ONNX Runtime call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Expects ``model.onnx`` beside this file; the benchmark puts the very file there that Bident serves."""

    def initialize(self, args: dict[str, str]) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(
            str(Path(__file__).with_name("model.onnx")), options, providers=["CPUExecutionProvider"]
        )

    def execute(self, requests: list[Any]) -> list[Any]:
        rows = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        merged = rows[0] if len(rows) == 1 else np.concatenate(rows)
        labels, probabilities = self.session.run(None, {"X": merged})
        labels = labels.reshape(-1, 1)
        responses, start = [], 0
        for part in rows:
            stop = start + len(part)
            outputs = [
                pb_utils.Tensor("label", labels[start:stop]),
                pb_utils.Tensor("probabilities", probabilities[start:stop]),
            ]
            responses.append(pb_utils.InferenceResponse(output_tensors=outputs))
            start = stop
        return responses
