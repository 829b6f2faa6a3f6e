"""Run by the Python of ``.venvs/kserve``: asks a server with KServe's own clients, and prints what they make of it.

``python kserve_client.py HTTP_PORT GRPC_PORT``. KServe's REST client reads liveness and readiness of a server from a
JSON body that Triton does not send; it is asked what it can ask a Triton.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import grpc
import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

SAMPLES = {
    "fp32": ("FP32", np.array([1.5, -2], np.float32)),
    "int64": ("INT64", np.array([-(2**63), 7], np.int64)),
    "bool": ("BOOL", np.array([True, False])),
    "bytes": ("BYTES", np.array([b"", "ф€".encode()], dtype=object)),
}


def question(model: str, *, binary: bool) -> InferRequest:
    datatype, array = SAMPLES.get(model, SAMPLES["fp32"])
    tensor = InferInput("X", list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return InferRequest(model_name=model, infer_inputs=[tensor], request_id=f"{model}-{binary}")


def told(response: Any) -> list[Any]:
    """Id, datatype and elements of an answer."""
    (output,) = response.outputs
    elements = output.as_numpy().tolist()
    text = [item.decode() if isinstance(item, bytes) else item for item in elements]
    return [response.id, output.datatype, text]


async def over_grpc(port: int) -> dict[str, Any]:
    async with InferenceGRPCClient(f"127.0.0.1:{port}", retries=2) as client:
        said: dict[str, Any] = {
            "live": await client.is_server_live(),
            "ready": await client.is_server_ready(),
            "model ready": await client.is_model_ready("fp32"),
            "unknown model ready": await client.is_model_ready("nobody"),
        }
        for binary in (True, False):
            for model in SAMPLES:
                said[f"{model}-{binary}"] = told(await client.infer(question(model, binary=binary)))
        try:
            await client.infer(question("nobody", binary=True))
        except grpc.RpcError as error:
            said["unknown model"] = [error.code().name, error.details()]
    return said


async def over_rest(port: int) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}"
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        said: dict[str, Any] = {"model ready": await client.is_model_ready(url, "fp32")}
        for binary in (True, False):
            for model in SAMPLES:
                answer = await client.infer(url, question(model, binary=binary), model_name=model)
                said[f"{model}-{binary}"] = told(answer)
        try:
            await client.infer(url, question("nobody", binary=True), model_name="nobody")
        except httpx.HTTPStatusError as error:
            said["unknown model"] = [error.response.status_code, error.response.json()["error"]]
    return said


async def main(http_port: int, grpc_port: int) -> None:
    print(json.dumps({"grpc": await over_grpc(grpc_port), "rest": await over_rest(http_port)}))  # noqa: T201 - its purpose


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
