"""The tensors of a configuration, held one by one against those of an ONNX file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bident.backends.onnx.check import check
from bident.backends.onnx.signature import DeclaredTensor, Signature
from bident.doctor.models.case import Case
from bident.doctor.models.onnx_file import OnnxFile, newest_onnx
from bident.errors import ConfigError
from bident.model.config import ModelConfig
from bident.model.proto import pb

SIDES = ("input", "output")


@dataclass(frozen=True)
class Pair:
    """A declared tensor and what the file has under its name."""

    file: OnnxFile
    side: str
    index: int
    """Among the inputs, or outputs, of the configuration."""
    tensor: Any
    """The tensor's message in the configuration."""
    known: DeclaredTensor

    @property
    def where(self) -> tuple[tuple[str, int], ...]:
        """The way to its message, for a change."""
        return ((self.side, self.index),)


def pairs(case: Case) -> Iterator[Pair]:
    """The tensors that configuration and newest file both have, and whose shape the file tells."""
    file = newest_onnx(case)
    if case.proto is None or file is None:
        return
    signature = file.signature
    for side in SIDES:
        for index, tensor in enumerate(getattr(case.proto, side)):
            known = signature.feed(tensor.name) if side == "input" else signature.outputs.get(tensor.name)
            if known is not None and known.is_tensor and known.datatype and file.has_shape(tensor.name):
                yield Pair(file, side, index, tensor, known)


def refusal(case: Case, pair: Pair) -> tuple[str, list[str]]:
    """Why the backend would refuse this tensor alone, and what it would warn of."""
    config = pb.ModelConfig(name=case.name, max_batch_size=max(0, case.filled.max_batch_size))
    getattr(config, pair.side).add().CopyFrom(pair.tensor)
    alone = {pair.tensor.name: pair.known}
    is_input = pair.side == "input"
    try:
        notes = check(
            ModelConfig.from_proto(config), Signature(alone if is_input else {}, {} if is_input else alone, {})
        )
    except ConfigError as error:
        return error.message, []
    return "", notes


def is_fixed(pair: Pair) -> bool:
    """Whether the file fixes the dimension that would be the batch's."""
    return not pair.known.batchable


def is_scalar_label(known: DeclaredTensor, tensor: Any) -> bool:
    """Whether the file has one number per row, and the configuration says ``dims: [ 1 ]`` without a reshape."""
    return known.dims == (-1,) and list(tensor.dims) == [1] and not tensor.HasField("reshape")


def right_dims(case: Case, pair: Pair) -> list[int]:
    """What ``dims`` should say; a tensor without dimensions of its own is one number to clients."""
    dims = pair.known.dims[1:] if case.filled.max_batch_size > 0 else pair.known.dims
    return list(dims) or [1]
