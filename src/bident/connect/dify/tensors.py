"""A loaded model as a workflow sees it: one row in, one row out, within what Dify's nodes can carry."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from bident.connect.site import TensorModel

MOST_NUMBERS = 1000
"""Of an array in a variable of Dify (CODE_MAX_NUMBER_ARRAY_LENGTH)."""
MOST_TEXTS = 30
"""Of an array of text, and of objects (CODE_MAX_STRING_ARRAY_LENGTH, CODE_MAX_OBJECT_ARRAY_LENGTH)."""
LONGEST_TEXT = 400_000
"""Characters of a variable (CODE_MAX_STRING_LENGTH)."""
MOST_ELEMENTS = 30_000
"""Of a tensor that travels as JSON: at 13 characters a number, as many as fit in a text variable."""

_PICTURE = re.compile(r"(.*[_\W])?(image|img|picture|photo)s?(([_\W]|\d).*)?", re.IGNORECASE)


class UnfitError(Exception):
    """Why a model cannot be used from Dify, in a clause."""


@dataclass(frozen=True)
class Tensor:
    """One input or output. ``dims`` are without the batch; -1 is any size."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    optional: bool = False
    labelled: bool = False

    @property
    def count(self) -> int | None:
        """How many elements one row has; None where that differs."""
        return None if -1 in self.dims else math.prod(self.dims)

    @property
    def is_number(self) -> bool:
        """Whether its elements are numbers."""
        return self.datatype not in ("BYTES", "BOOL")

    @property
    def is_picture(self) -> bool:
        """Whether it takes a picture's file, as its name says."""
        return self.datatype == "BYTES" and self.count == 1 and _PICTURE.fullmatch(self.name) is not None


@dataclass(frozen=True)
class Shape:
    """What one row of a model is."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    batched: bool

    @property
    def lead(self) -> list[int]:
        """The batch dimension of one row, where there is one."""
        return [1] if self.batched else []


def shape_of(model: TensorModel) -> Shape:
    """The inputs and outputs of ``model``. Raises UnfitError where it does not answer a request by itself, once."""
    config = model.config
    if (config.get("model_transaction_policy") or {}).get("decoupled"):
        raise UnfitError("it answers as a stream, and Dify's HTTP node reads one answer")
    if "sequence_batching" in config:
        raise UnfitError("it remembers its last requests, and Dify's runs do not know of each other")
    batched = int(config.get("max_batch_size", 0)) > 0
    return Shape(_tensors(model, "input", batched), _tensors(model, "output", batched), batched)


def _tensors(model: TensorModel, kind: str, batched: bool) -> tuple[Tensor, ...]:
    configured = {entry.get("name"): entry for entry in model.config.get(kind, ())}
    found = []
    for entry in model.metadata.get(f"{kind}s", ()):
        more = configured.get(entry["name"], {})
        dims = tuple(int(dim) for dim in entry["shape"])[1 if batched else 0 :]
        optional, labelled = bool(more.get("optional")), bool(more.get("label_filename"))
        found.append(Tensor(entry["name"], entry["datatype"], dims, optional, labelled))
    return tuple(found)
