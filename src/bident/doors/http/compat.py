"""``--triton-compat``: where Bident mends what clients of Triton may have come to depend on, it lets it be.

The one place that knows. Triton takes JSON numbers modulo their datatype and overflows to infinity, prints FP32 as the
double it is and NaN as ``NaN``, leaves out what a model did not produce, takes an empty body for an empty raw tensor,
and calls JSON that it cannot read its own failure (500). ``docs/differences.md`` marks these rows.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.doors.access import Api
from bident.doors.http import generate_request, generate_response, v2_json, v2_request
from bident.doors.http.exchange import Exchange
from bident.doors.http.routes import Routes, Serve
from bident.doors.http.v2_answering import Answering
from bident.doors.http.v2_elements import ALLOWED, INTEGER
from bident.engine.shared_memory import SharedMemory
from bident.errors import Code, MalformedError, ServeError
from bident.model.config import ModelConfig
from bident.wire.datatypes import DATATYPES, DataType
from bident.wire.infer import InferRequest, InferResponse


class CompatibleRoutes(Routes):
    """Routes on which a body that cannot be read is the server's own failure."""

    def add(
        self,
        verb: str,
        pattern: str,
        serve: Serve,
        *,
        binary: bool = False,
        defaults: tuple[str, ...] = (),
        api: Api | None = None,
    ) -> None:
        """Serve ``verb`` on ``pattern`` with ``serve``."""
        super().add(verb, pattern, _taking_blame(serve), binary=binary, defaults=defaults, api=api)


def _taking_blame(serve: Serve) -> Serve:
    def served(exchange: Exchange) -> Awaitable[None] | None:
        try:
            waiting = serve(exchange)
        except MalformedError as error:
            raise ServeError(Code.INTERNAL, error.message) from None
        return None if waiting is None else _awaited(waiting)

    return served


async def _awaited(waiting: Awaitable[None]) -> None:
    try:
        await waiting
    except MalformedError as error:
        raise ServeError(Code.INTERNAL, error.message) from None


def parse(
    model: tuple[str, str], body: bytes, header_length: int | None, received_ns: int, memory: SharedMemory
) -> tuple[InferRequest, Answering]:
    """As ``v2_request.parse``, with numbers wrapped to fit and an answer as Triton prints it."""
    request, answering = v2_request.parse(model, body, header_length, received_ns, memory, _loads)
    request.may_lack_outputs = request.outputs is not None
    return request, replace(answering, write=write)


def parse_generate(model: tuple[str, str], config: ModelConfig, body: bytes, received_ns: int) -> InferRequest:
    """As ``generate_request.parse``, with numbers wrapped to fit."""
    return generate_request.parse(model, config, body, received_ns, _fit_members)


def encode_generate(response: InferResponse) -> bytes:
    """As ``generate_response.encode``, as Triton prints it."""
    return generate_response.encode(response, lambda members: write(dict(sorted(members.items()))))


def write(document: dict[str, Any]) -> bytes:
    """``document`` as Triton prints it: FP32 as doubles, NaN and infinities in words that are not JSON."""
    return json.dumps(document, default=_plain, ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    return value.tolist()  # a numpy array or number, of which it makes doubles


def _loads(body: bytes | memoryview) -> dict[str, Any]:
    document = v2_json.loads(body)
    inputs = document.get("inputs")
    for item in inputs if type(inputs) is list else ():
        datatype = DATATYPES.get(str(item.get("datatype"))) if type(item) is dict else None
        if datatype is not None and "data" in item:
            item["data"] = _fit(datatype, item["data"])
    return document


def _fit_members(config: ModelConfig, members: dict[str, Any]) -> None:
    for key, value in members.items():
        spec = config.inputs.get(key)
        if spec is not None:
            members[key] = _fit(spec.datatype, value)
        elif key == generate_request.NESTED and type(value) is dict:
            _fit_members(config, value)


def _fit(datatype: DataType, data: Any) -> Any:
    """The numbers in ``data`` as C++ converts 64-bit ones: the low bits of integers, infinity for what is too large."""
    if isinstance(data, np.ndarray):
        return _fit_array(datatype, data)
    if type(data) is list:
        return [_fit(datatype, element) for element in data]
    if type(data) is int and ALLOWED[datatype.name] is INTEGER:
        return _fit_integer(datatype, data)
    if type(data) is float and datatype.name == "FP32":
        with np.errstate(over="ignore"):
            return float(np.float32(data))
    return data


def _fit_array(datatype: DataType, wide: NDArray[Any]) -> NDArray[Any]:
    if ALLOWED[datatype.name] is INTEGER or datatype.name == "FP32":
        with np.errstate(over="ignore"):
            return wide.astype(datatype.numpy)
    return wide


def _fit_integer(datatype: DataType, value: int) -> int:
    signed = not datatype.name.startswith("U")
    widest = range(-(2**63), 2**63) if signed else range(2**64)
    if value not in widest:
        kind = "signed-integer" if signed else "unsigned-integer"
        raise MalformedError(f"Unable to parse 'data': attempt to access JSON non-{kind} as {kind}, got {value}")
    bits = 8 * datatype.size
    low = value & ((1 << bits) - 1)
    return low - (1 << bits) if signed and low >> (bits - 1) else low
