"""Answers one request many times: the numbers from 0 up to IN, one a response."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Decoupled: responses go out as they are made."""

    def execute(self, requests):
        """Send IN responses to each request, then its end."""
        for request in requests:
            sender = request.get_response_sender()
            count = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
            for number in range(count):
                tensor = pb_utils.Tensor("OUT", np.array([number], np.int32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
