"""--triton-compat: numbers as Triton takes and prints them, and its statuses."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from bident.doors.http import compat
from bident.engine.shared_memory import SharedMemory
from bident.errors import Code, MalformedError, ServeError

MEMORY = SharedMemory(allowed=False)


def parsed(datatype: str, data: Any, shape: list[int] | None = None) -> Any:
    item = {"name": "X", "shape": shape or [len(data)], "datatype": datatype, "data": data}
    request, answering = compat.parse(("m", ""), json.dumps({"inputs": [item]}).encode(), None, 0, MEMORY)
    assert answering.write is compat.write
    return request.inputs["X"].data


@pytest.mark.parametrize(
    ("datatype", "given", "taken"),
    [
        ("UINT8", [256, 511, 2**63], [0, 255, 0]),
        ("INT8", [128, -129, 2**62], [-128, 127, 0]),
        ("UINT32", [2**32 + 7], [7]),
        ("INT32", [2**31], [-(2**31)]),
        ("INT64", [-(2**63)], [-(2**63)]),
        ("UINT64", [2**64 - 1], [2**64 - 1]),
        ("FP32", [1e39, -1e308, 0.5], [np.inf, -np.inf, 0.5]),
        ("FP64", [1e308], [1e308]),
    ],
)
def test_numbers_are_taken_modulo_their_datatype(datatype: str, given: list[Any], taken: list[Any]) -> None:
    assert parsed(datatype, given) == taken


def test_nested_data_too() -> None:
    assert parsed("UINT8", [[1, 257], [3, 4]], [2, 2]) == [1, 1, 3, 4]


@pytest.mark.parametrize(("datatype", "given"), [("UINT8", 256), ("INT16", 65537), ("FP32", 1e39)])
def test_large_bodies_too(datatype: str, given: float) -> None:
    data = parsed(datatype, [given] * 10_000)
    assert data.shape == (10_000,)
    assert set(data.tolist()) == {np.inf if datatype == "FP32" else given % 256}


@pytest.mark.parametrize(("datatype", "given"), [("UINT8", -1), ("INT8", 2**63), ("UINT64", -5), ("INT32", 1.5)])
def test_what_triton_refuses_is_refused(datatype: str, given: float) -> None:
    with pytest.raises(MalformedError, match="attempt to access JSON non-"):
        parsed(datatype, [given])


def test_numbers_are_printed_as_doubles() -> None:
    document = {"data": np.array([0.9999, np.nan, np.inf, -np.inf], np.float32), "shape": (4,), "text": "é"}
    assert compat.write(document) == (
        '{"data":[0.9998999834060669,NaN,Infinity,-Infinity],"shape":[4],"text":"é"}'.encode()
    )


def test_a_malformed_body_is_the_servers_failure() -> None:
    def serve(exchange: Any) -> None:
        raise MalformedError("it is")

    routes = compat.CompatibleRoutes()
    routes.add("GET", "/x", serve)
    resource, _ = routes.find(b"/x", b"GET")  # type: ignore[misc]
    with pytest.raises(ServeError, match="it is") as caught:
        resource.serve(None)  # type: ignore[union-attr]
    assert caught.value.code is Code.INTERNAL


def test_outputs_that_a_model_does_not_make_may_be_missing() -> None:
    body = json.dumps({"inputs": [], "outputs": [{"name": "Y"}]}).encode()
    request, _ = compat.parse(("m", ""), body, None, 0, MEMORY)
    assert request.may_lack_outputs
