"""Asks another model, in the way that MODE names, and answers with the sum of what it says."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


def question(value):
    return pb_utils.InferenceRequest(
        model_name="other",
        requested_output_names=["OUT0"],
        inputs=[pb_utils.Tensor("IN0", np.array([value], dtype=np.float32))],
        parameters={"asked": True},
    )


def number(response):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return float(pb_utils.get_output_tensor_by_name(response, "OUT0").as_numpy().sum())


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        mode = request.inputs()[0].as_numpy()[0].decode()
        if mode == "exec":
            result = number(question(1).exec())
        elif mode == "decoupled":
            result = sum(number(response) for response in question(2).exec(decoupled=True))
        elif mode == "async":
            result = sum(map(number, await asyncio.gather(*[question(n).async_exec() for n in range(50)])))
        else:
            result = sum(number(response) for response in await question(3).async_exec(decoupled=True))
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", np.array([result], dtype=np.float64))])
