"""Adds up the numbers of each sequence, and says what it was told. A number below 0 fails; X runs so many milliseconds.

``TOLD``: a JSON text with the inputs that the scheduler added, the id, the flags, and the request's place in the batch.
"""

import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def plain(array):
    values = [value.decode() if isinstance(value, bytes) else value for value in array.reshape(-1).tolist()]
    return [str(array.dtype), list(array.shape), values]


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        responses = []
        for place, request in enumerate(requests):
            tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            x = tensors.pop("X")
            number = int(x.reshape(-1)[0])
            key = request.correlation_id()
            if request.flags() & 1:
                self.sums[key] = 0
            if number < 0:
                error = pb_utils.TritonError("no number below 0", pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse(error=error))
                continue
            if "READY" not in tensors or tensors["READY"].reshape(-1)[0]:
                self.sums[key] = self.sums.get(key, 0) + number
            time.sleep(min(number, 500) / 1000 if number > 100 else 0)
            told = {
                "controls": {name: plain(array) for name, array in sorted(tensors.items())},
                "id": key,
                "flags": request.flags(),
                "place": [place, len(requests)],
            }
            y = np.full(x.shape, self.sums.get(key, 0), dtype=np.int32)
            text = np.full(x.shape, json.dumps(told), dtype=np.object_)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y), pb_utils.Tensor("TOLD", text)]))
        return responses
