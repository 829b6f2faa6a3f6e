"""The model.py that Bident and a real Triton run alike: each request's INPUT0 comes back as its OUTPUT0."""

from __future__ import annotations

from typing import Any

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The loop of every tutorial: one request, one tensor, one response."""

    def execute(self, requests: list[Any]) -> list[Any]:
        responses = []
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            output = pb_utils.Tensor("OUTPUT0", values)
            responses.append(pb_utils.InferenceResponse(output_tensors=[output]))
        return responses
