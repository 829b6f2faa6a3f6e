"""Y = X, once the file that the parameter GATE names is there."""

import json
import os
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.gate = json.loads(args["model_config"])["parameters"]["GATE"]["string_value"]

    def execute(self, requests):
        deadline = time.monotonic() + 20
        while not os.path.exists(self.gate) and time.monotonic() < deadline:
            time.sleep(0.002)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())]) for r in requests]
