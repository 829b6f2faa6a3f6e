"""Says the first ``max_tokens`` words of a text again."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    @staticmethod
    def _answer(request):
        text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode()
        most = int(pb_utils.get_input_tensor_by_name(request, "max_tokens").as_numpy()[0])
        said = " ".join(text.split()[:most]).encode()
        return pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([said], dtype=object))])
