"""Inference over HTTP with tensors in the binary extension, in both directions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.client.connection import Reply
from bident.client.http import Client, model_path
from bident.errors import Code, ServeError, invalid_arg
from bident.wire.datatypes import BYTES, DATATYPES, DataType, from_numpy
from bident.wire.infer import element_count
from bident.wire.tensor import pack, unpack

_JSON_SIZE = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Answer:
    """What came back: the JSON part as it was, each output's tensor, and the seconds it took."""

    body: dict[str, Any]
    tensors: dict[str, NDArray[Any]]
    seconds: float


def infer(
    client: Client,
    model: str,
    tensors: Mapping[str, NDArray[Any]],
    *,
    version: str = "",
    outputs: Sequence[Mapping[str, Any]] = (),
    parameters: Mapping[str, Any] | None = None,
    binary_outputs: bool = True,
) -> Answer:
    """Ask ``model`` with ``tensors`` by input name; their numpy types say the datatypes.

    ``outputs`` are v2's ``outputs`` entries; without any, all outputs come as binary data, or in JSON
    where ``binary_outputs`` is False. ``parameters`` are the request's. Raises what the server answers.
    """
    described, parts = [], []
    for name, array in tensors.items():
        part = bytes(pack(array, datatype_of(name, array)))
        parts.append(part)
        described.append(_head(name, array) | {"parameters": {"binary_data_size": len(part)}})
    body: dict[str, Any] = {
        "inputs": described,
        "parameters": {"binary_data_output": binary_outputs, **(parameters or {})},
    }
    if outputs:
        body["outputs"] = list(outputs)
    return infer_body(client, model, body, parts, version=version)


def infer_body(
    client: Client, model: str, body: Mapping[str, Any], parts: Sequence[bytes] = (), *, version: str = ""
) -> Answer:
    """Ask ``model`` with a v2 request as it stands, its binary tensors in ``parts``."""
    head = json.dumps(body).encode()
    headers = {"Content-Type": "application/octet-stream", _JSON_SIZE: str(len(head))}
    started = time.perf_counter()
    reply = client.exchange("POST", model_path(model, version) + "/infer", head + b"".join(parts), headers)
    seconds = time.perf_counter() - started
    client.check(reply)
    answered, answers = decode(reply)
    return Answer(answered, answers, seconds)


def as_json(tensors: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The v2 request for ``tensors`` with its data in JSON, as curl could send it."""
    inputs = []
    for name, array in tensors.items():
        data = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1).tolist()]
        inputs.append(_head(name, array) | {"data": data})
    return {"inputs": inputs}


def is_text(array: NDArray[Any]) -> bool:
    """Whether ``array`` can travel in JSON: numbers do, bytes only where they are UTF-8."""
    if array.dtype != object:
        return True
    try:
        for item in array.reshape(-1).tolist():
            if isinstance(item, bytes):
                item.decode()
    except UnicodeDecodeError:
        return False
    return True


def datatype_of(name: str, array: NDArray[Any]) -> DataType:
    """The v2 datatype of ``array``, the tensor called ``name``."""
    datatype = from_numpy(array.dtype)
    if datatype is None:
        raise invalid_arg(f"tensor '{name}' is of numpy type {array.dtype}, which has no v2 datatype")
    return datatype


def decode(reply: Reply) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The JSON part and the output tensors of an answer. Raises INTERNAL when it is not a v2 answer."""
    try:
        size = int(reply.headers.get(_JSON_SIZE, len(reply.body)))
        answered: dict[str, Any] = json.loads(reply.body[:size])
        return answered, _tensors(answered["outputs"], memoryview(reply.body)[size:])
    except (KeyError, TypeError, ValueError, ServeError) as error:
        raise ServeError(Code.INTERNAL, f"the server's answer is not a v2 infer response: {error!r}") from None


def _head(name: str, array: NDArray[Any]) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "datatype": datatype_of(name, array).name}


def _tensors(outputs: list[dict[str, Any]], binary: memoryview) -> dict[str, NDArray[Any]]:
    tensors = {}
    at = 0
    for output in outputs:
        datatype, shape = DATATYPES[output["datatype"]], tuple(output["shape"])
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            tensors[output["name"]] = _from_json(output["data"], datatype).reshape(shape)
            continue
        tensors[output["name"]] = unpack(output["name"], datatype, shape, element_count(shape), binary[at : at + size])
        at += size
    return tensors


def _from_json(data: list[Any], datatype: DataType) -> NDArray[Any]:
    if datatype is not BYTES:
        return np.array(data, datatype.numpy)
    return np.array([item.encode() for item in data], dtype=object)
