"""Which variables become of a model's outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bident.connect.dify.names import Names
from bident.connect.dify.tensors import MOST_ELEMENTS, MOST_NUMBERS, MOST_TEXTS, Shape, Tensor, UnfitError

TEXT = "answer"
"""The variable that holds all of the answer as text."""
_MOST_IN_A_CELL = 16
_ONE = {"BYTES": "string", "BOOL": "boolean"}
"""What a single value is in Dify; anything else is a number."""


@dataclass(frozen=True)
class Reading:
    """``plan`` is the code node's; ``requested`` are v2's ``outputs``; ``variables`` are Dify's types by name.

    ``left_out`` are outputs that are too large.
    """

    plan: list[dict[str, Any]]
    requested: list[dict[str, Any]]
    variables: dict[str, str]
    left_out: tuple[str, ...] = ()


def reading(shape: Shape, top: int, *, selects: bool = True) -> Reading:
    """How the answer of a model of ``shape`` is read, ``top`` classes of what is ranked.

    ``selects``: whether the request can say which outputs it wants, and how. Raises UnfitError where nothing is left.
    """
    reader = _Reader(shape, top, selects)
    rows = [tensor for tensor in shape.outputs if _is_column(tensor)]
    if len(rows) > 1:
        reader.read_table(rows)
    for tensor in shape.outputs:
        if tensor not in rows or len(rows) == 1:
            reader.read(tensor)
    if not reader.plan:
        large = ", ".join(f"'{name}'" for name in reader.left_out)
        raise UnfitError(f"its output {large} is more than Dify's nodes can carry (1 MiB, {MOST_NUMBERS} numbers)")
    variables = {**reader.variables, TEXT: "string"}
    return Reading(reader.plan, reader.requested, variables, tuple(reader.left_out))


def _is_column(tensor: Tensor) -> bool:
    """Whether it has a row for each of any number of things, of few values each."""
    return tensor.dims[:1] == (-1,) and -1 not in tensor.dims[1:] and math.prod(tensor.dims[1:]) <= _MOST_IN_A_CELL


class _Reader:
    """Adds up what becomes of each output."""

    def __init__(self, shape: Shape, top: int, selects: bool) -> None:
        self._skip = len(shape.lead)
        self._top = top
        self._selects = selects
        self._names = Names(TEXT)
        self.plan: list[dict[str, Any]] = []
        self.requested: list[dict[str, Any]] = []
        self.variables: dict[str, str] = {}
        self.left_out: list[str] = []
        self._ranks_one = sum(self._is_ranked(tensor) for tensor in shape.outputs) == 1

    def read(self, tensor: Tensor) -> None:
        """One output by itself."""
        if self._is_ranked(tensor):
            self._rank(tensor)
            return
        count = tensor.count
        if count is not None and count > MOST_ELEMENTS:
            if not self._selects:
                raise UnfitError(f"its output '{tensor.name}' of {count} elements would come along, and is too large")
            self.left_out.append(tensor.name)
            return
        one = _ONE.get(tensor.datatype, "number")
        if count == 1:
            self._add("value", tensor, one)
        elif count is not None and len(tensor.dims) == 1 and count <= _most(tensor):
            self._add("list", tensor, f"array[{one}]")
        else:
            self._add("text", tensor, "string")

    def read_table(self, tensors: list[Tensor]) -> None:
        """Outputs that have a row for each of the same things."""
        rows, count = self._names.name("rows"), self._names.name("count")
        step = {"how": "table", "outputs": [tensor.name for tensor in tensors]}
        self.plan.append({**step, "variable": rows, "count": count, "skip": self._skip})
        self.requested += [{"name": tensor.name} for tensor in tensors]
        self.variables |= {count: "number", rows: "array[object]"}

    def _is_ranked(self, tensor: Tensor) -> bool:
        """Whether the server is asked for the best classes: where they have names, or where they are too many."""
        count = tensor.count
        if not self._selects or count is None or len(tensor.dims) != 1 or not tensor.is_number:
            return False
        return count > 1 and (tensor.labelled or count > MOST_ELEMENTS)

    def _rank(self, tensor: Tensor) -> None:
        before = "" if self._ranks_one else f"{tensor.name}_"
        label, score, ranked = (self._names.name(before + name) for name in ("best", "score", "ranking"))
        step = {"how": "ranking", "output": tensor.name, "variable": ranked, "label": label, "score": score}
        self.plan.append(step)
        classes = min(self._top, tensor.count or 1, MOST_TEXTS)
        self.requested.append({"name": tensor.name, "parameters": {"classification": classes}})
        self.variables |= {label: "string", score: "number", ranked: "array[object]"}

    def _add(self, how: str, tensor: Tensor, kind: str) -> None:
        variable = self._names.name(tensor.name)
        self.plan.append({"how": how, "output": tensor.name, "variable": variable, "skip": self._skip})
        self.requested.append({"name": tensor.name})
        self.variables[variable] = kind


def _most(tensor: Tensor) -> int:
    return MOST_NUMBERS if tensor.is_number else MOST_TEXTS
