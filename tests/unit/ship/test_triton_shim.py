"""The model.py of a shim, with a stand-in for what Triton's Python backend gives it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bident.ship.triton import shim

Execute = Callable[[dict[str, Any]], dict[str, Any]]


class Tensor:
    def __init__(self, name: str, array: Any) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Any:
        return self._array


class Response:
    def __init__(self, tensors: list[Tensor] | None = None, error: str | None = None) -> None:
        self.said = error or {tensor.name(): tensor.as_numpy().tolist() for tensor in tensors or ()}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """What requests, each of them rows by tensor's name, are answered by a backend that does ``execute``."""
    utilities = SimpleNamespace(Tensor=Tensor, InferenceResponse=Response, TritonError=str)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utilities)
    spec = importlib.util.spec_from_file_location("shim_model", Path(shim.__file__).parent / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def ask(execute: Execute, *requests: dict[str, list[float]]) -> list[Any]:
        model = module.TritonPythonModel()
        model.config = SimpleNamespace(max_batch_size=8, outputs=["Y"])
        model.instance = SimpleNamespace(execute=execute)
        tensors = [[Tensor(name, np.array(rows)) for name, rows in request.items()] for request in requests]
        return [answer.said for answer in model.execute([SimpleNamespace(inputs=lambda i=i: i) for i in tensors])]

    return ask


def test_requests_run_together_and_come_apart_again(answers: Callable[..., list[Any]]) -> None:
    runs: list[int] = []

    def double(inputs: dict[str, Any]) -> dict[str, Any]:
        runs.append(len(inputs["X"]))
        return {"Y": inputs["X"] * 2}

    assert answers(double, {"X": [1.0]}, {"X": [2.0, 3.0]}) == [{"Y": [2.0]}, {"Y": [4.0, 6.0]}]
    assert runs == [3]


def test_one_that_fails_is_one_that_fails(answers: Callable[..., list[Any]]) -> None:
    def picky(inputs: dict[str, Any]) -> dict[str, Any]:
        if (inputs["X"] < 0).any():
            raise ValueError("too low")
        return {"Y": inputs["X"]}

    assert answers(picky, {"X": [1.0]}, {"X": [-1.0]}) == [{"Y": [1.0]}, "too low"]


@pytest.mark.parametrize("first", [{"X": [1.0]}, {"X": [1.0], "MORE": [5.0]}])
def test_an_input_that_some_have_is_lost_for_nobody(
    answers: Callable[..., list[Any]], first: dict[str, list[float]]
) -> None:
    def add(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"Y": inputs["X"] + inputs.get("MORE", 0.0)}

    second = {"X": [2.0]} if "MORE" in first else {"X": [2.0], "MORE": [5.0]}
    expected = [{"Y": [request["X"][0] + sum(request.get("MORE", []))]} for request in (first, second)]
    assert answers(add, first, second) == expected


def test_rows_that_cannot_be_told_apart_are_asked_for_one_by_one(answers: Callable[..., list[Any]]) -> None:
    def total(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"Y": inputs["X"].sum(keepdims=True)}

    assert answers(total, {"X": [1.0, 2.0]}, {"X": [3.0]}) == [{"Y": [3.0]}, {"Y": [3.0]}]
