"""Works until nobody waits any more for any of its requests, or until a file named by IN0 appears."""

import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        path = Path(requests[0].inputs()[0].as_numpy()[0].decode())
        while not all(request.is_cancelled() for request in requests) and not path.exists():
            time.sleep(0.001)
        cancelled = [request.is_cancelled() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("CANCELLED", np.array([flag]))]) for flag in cancelled]
