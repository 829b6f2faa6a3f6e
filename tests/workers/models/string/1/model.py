"""Every string in upper case; bytes that are no UTF-8 as they are."""

import numpy as np
import triton_python_backend_utils as pb_utils


def upper(item):
    try:
        return item.decode("utf-8").upper().encode("utf-8")
    except UnicodeDecodeError:
        return item


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            result = np.array([upper(item) for item in texts.reshape(-1)], dtype=np.object_).reshape(texts.shape)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("UPPER", result)]))
        return responses
