"""Says the first ``max_tokens`` words of a text again: one by one if asked for a stream, else in one answer."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode()
            asked = json.loads(request.parameters())
            words = text.split()[: int(asked["max_tokens"])]
            parts = [f"{word} " for word in words] if asked["stream"] else [" ".join(words)]
            sender = request.get_response_sender()
            for part in parts:
                said = pb_utils.Tensor("text_output", np.array([part.encode()], dtype=object))
                sender.send(pb_utils.InferenceResponse([said]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
