"""Y = X for a model that batches; its execute is a coroutine function. A request may ask for the group sizes."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return await asyncio.gather(*[self.answer(request, requests) for request in requests])

    async def answer(self, request, requests):
        await asyncio.sleep(0)
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        others = [other.inputs()[0].shape()[0] for other in requests]
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("Y", x), pb_utils.Tensor("ROWS", np.full((len(x), 1), sum(others), dtype=np.int32))]
        )
