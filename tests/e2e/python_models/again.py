"""Counts X down, one step in each execute: the request is scheduled anew until the count is 0.

``STEPS`` are the flags and the size of the batch of each time it ran. A decoupled one sends each count, and does so
in a coroutine where the parameter ASYNC is set.
"""

import asyncio
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self.asynchronous = "ASYNC" in config["parameters"]
        self.left = {}
        self.steps = {}

    def execute(self, requests):
        if self.asynchronous:
            return self.later(requests)
        responses = [self.step(request, len(requests)) for request in requests]
        return None if self.decoupled else responses

    async def later(self, requests):
        await asyncio.sleep(0.001)
        for request in requests:
            self.step(request, len(requests))

    def step(self, request, count):
        key = request.correlation_id()
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if key not in self.left:
            self.left[key] = int(x.reshape(-1)[0])
            self.steps[key] = []
        left = self.left[key]
        self.steps[key].append([request.flags(), count])
        self.left[key] -= 1
        response = pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("Y", np.full(x.shape, left, dtype=np.int32)),
                pb_utils.Tensor("STEPS", np.full(x.shape, json.dumps(self.steps[key]), dtype=np.object_)),
            ]
        )
        if left > 0:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            if self.decoupled:
                request.get_response_sender().send(response)
            return None
        del self.left[key]
        if self.decoupled:
            request.get_response_sender().send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return response
