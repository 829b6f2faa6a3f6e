"""Requests of ModelInfer to the identity models of a ``Site``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bident.doors.grpc.call import Status
from bident.doors.grpc.messages import pb
from bident.wire.datatypes import DATATYPES
from bident.wire.tensor import pack
from tests.unit.doors.grpc.grpc_stage import RefusedError, Site


def question(datatype: str = "FP32", shape: tuple[int, ...] = (1, 2), model: str = "", **fields: Any) -> Any:
    request = pb.ModelInferRequest(model_name=model or datatype.lower(), **fields)
    request.inputs.add(name="X", datatype=datatype, shape=shape)
    return request


def raw(datatype: str, values: list[Any], shape: tuple[int, ...] = (1, 2), **fields: Any) -> Any:
    request = question(datatype, shape, **fields)
    array = np.array(values, dtype=DATATYPES[datatype].numpy)
    request.raw_input_contents.append(bytes(pack(array, DATATYPES[datatype])))
    return request


def typed(datatype: str, field: str, values: list[Any], shape: tuple[int, ...] = (1, 2), **fields: Any) -> Any:
    request = question(datatype, shape, **fields)
    getattr(request.inputs[0].contents, field).extend(values)
    return request


def parameter(value: Any, kind: str = "") -> Any:
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
    return pb.InferParameter(**{kind or kinds[type(value)]: value})


def refused(site: Site, request: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        site.infer(request)
    assert caught.value.status is Status.INVALID_ARGUMENT, caught.value
    return caught.value.details
