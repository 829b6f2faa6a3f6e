"""Decoupled and asynchronous: waits until it holds two requests, so that they must overlap; then answers both."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.held = 0

    async def execute(self, requests):
        self.held += len(requests)
        while self.held < 2:
            await asyncio.sleep(0.001)
        for request in requests:
            sender = request.get_response_sender()
            for value in request.inputs()[0].as_numpy():
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", np.array([value]))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
