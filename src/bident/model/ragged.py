"""``allow_ragged_batch``, ``batch_input`` and ``batch_output`` as the engine acts upon them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bident.model.proto import pb
from bident.wire.datatypes import BY_CONFIG_NAME, DataType


@dataclass(frozen=True)
class BatchInput:
    """A tensor that the scheduler computes of the shapes of one input in a batch's requests."""

    kind: str
    names: tuple[str, ...]
    datatype: DataType
    source: str


@dataclass(frozen=True)
class Ragged:
    """What of a model's batches is not one row after the other. ``scattered``: the outputs, each with its input."""

    inputs: frozenset[str] = frozenset()
    computed: tuple[BatchInput, ...] = ()
    scattered: dict[str, str] = field(default_factory=dict)


def read(proto: Any) -> Ragged | None:
    """Read a config that has passed ``validate``; None for one that has none of the three."""
    inputs = frozenset(tensor.name for tensor in proto.input if tensor.allow_ragged_batch)
    computed = tuple(
        BatchInput(
            pb.BatchInput.Kind.Name(tensor.kind),
            tuple(tensor.target_name),
            BY_CONFIG_NAME[pb.DataType.Name(tensor.data_type)],
            tensor.source_input[0],
        )
        for tensor in proto.batch_input
    )
    scattered = {name: tensor.source_input[0] for tensor in proto.batch_output for name in tensor.target_name}
    return Ragged(inputs, computed, scattered) if inputs or computed or scattered else None
