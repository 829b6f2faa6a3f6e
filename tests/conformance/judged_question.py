"""An inference as neither protocol has it yet, and how each of them writes it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from tritonclient.grpc import service_pb2 as pb

NUMPY: dict[str, Any] = {
    "BOOL": np.bool_,
    **{f"UINT{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{"FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BF16": ml_dtypes.bfloat16},
}
CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    **{"UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents"},
}
"""The field of ``InferTensorContents`` for each datatype that has one."""


def text(*elements: bytes) -> bytes:
    """BYTES elements as they travel."""
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def with_head(document: Any, raw: bytes) -> tuple[bytes, dict[str, str]]:
    """A body of JSON and bytes, and the header that says where they begin."""
    head = json.dumps(document).encode()
    return head + raw, {"Inference-Header-Content-Length": str(len(head))}


@dataclass(frozen=True)
class Tensor:
    """``values`` are Python's, row-major; byte strings for BYTES."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: tuple[Any, ...]

    @property
    def raw(self) -> bytes:
        if self.datatype == "BYTES":
            return text(*self.values)
        return np.array(self.values, NUMPY[self.datatype]).tobytes()

    @property
    def described(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), "datatype": self.datatype}

    @property
    def json(self) -> dict[str, Any]:
        values = [value.decode() if isinstance(value, bytes) else value for value in self.values]
        return {**self.described, "data": values}


def vector(name: str, datatype: str, *values: Any) -> Tensor:
    return Tensor(name, datatype, (len(values),), values)


@dataclass(frozen=True)
class Question:
    """``outputs`` are names and their parameters; none asks for all."""

    model: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[tuple[str, dict[str, Any]], ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    version: str = ""

    @property
    def path(self) -> str:
        version = f"/versions/{self.version}" if self.version else ""
        return f"/v2/models/{self.model}{version}/infer"

    def document(self, inputs: Iterable[dict[str, Any]]) -> dict[str, Any]:
        said: dict[str, Any] = {"id": self.id} if self.id else {}
        if self.parameters:
            said["parameters"] = self.parameters
        said["inputs"] = list(inputs)
        if self.outputs:
            said["outputs"] = [{"name": name, **({"parameters": more} if more else {})} for name, more in self.outputs]
        return said

    def json_body(self) -> bytes:
        return json.dumps(self.document(tensor.json for tensor in self.inputs)).encode()

    def binary_body(self, **more: Any) -> tuple[bytes, dict[str, str]]:
        """All inputs in the binary part; ``more`` are members of the document."""
        inputs = [{**one.described, "parameters": {"binary_data_size": len(one.raw)}} for one in self.inputs]
        return with_head({**self.document(inputs), **more}, b"".join(one.raw for one in self.inputs))

    def message(self, *, raw: bool) -> Any:
        """A ``ModelInferRequest``, its tensors as bytes or as typed contents."""
        request = pb.ModelInferRequest(model_name=self.model, model_version=self.version, id=self.id)
        put_parameters(request.parameters, self.parameters)
        for one in self.inputs:
            given = request.inputs.add(name=one.name, datatype=one.datatype, shape=one.shape)
            if raw:
                request.raw_input_contents.append(one.raw)
            else:
                getattr(given.contents, CONTENTS[one.datatype]).extend(one.values)
        for name, more in self.outputs:
            put_parameters(request.outputs.add(name=name).parameters, more)
        return request


def put_parameters(into: Any, values: dict[str, Any]) -> None:
    """Set parameters of a protobuf message, each in the member of its oneof that its type asks for."""
    for key, value in values.items():
        member = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}[type(value)]
        setattr(into[key], member, value)
