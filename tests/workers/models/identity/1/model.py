"""Answers every input as the output of the same place: IN0 -> OUT0."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "IN0").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", array)]))
        return responses
