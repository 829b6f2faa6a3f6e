"""What a model file declares: the names, types and shapes of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bident.wire.datatypes import DATATYPES, DataType

_WIRE_NAME = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float": "FP32",
    "double": "FP64",
    "bfloat16": "BF16",
    "string": "BYTES",
}

_KINDS = {
    "tensor": "ONNX_TYPE_TENSOR",
    "seq": "ONNX_TYPE_SEQUENCE",
    "map": "ONNX_TYPE_MAP",
    "optional": "ONNX_TYPE_OPTIONAL",
    "sparse_tensor": "ONNX_TYPE_SPARSETENSOR",
}


@dataclass(frozen=True)
class DeclaredTensor:
    """One input or output of a model file.

    ``onnx_type`` is ONNX Runtime's spelling (``tensor(float)``, ``seq(map(int64,tensor(float)))``).
    ``shape`` includes the batch dimension; a free dimension is its symbolic name, or None. An empty
    shape is a scalar, or a tensor whose rank the file leaves open: ONNX Runtime does not tell which.
    """

    name: str
    onnx_type: str
    shape: tuple[int | str | None, ...]

    @cached_property
    def kind(self) -> str:
        """Triton's word for the sort of value it is (``ONNX_TYPE_TENSOR``, ``ONNX_TYPE_SEQUENCE``, ...)."""
        return _KINDS.get(self.onnx_type.partition("(")[0], "ONNX_TYPE_UNKNOWN")

    @property
    def is_tensor(self) -> bool:
        return self.kind == "ONNX_TYPE_TENSOR"

    @cached_property
    def element(self) -> str:
        """ONNX Runtime's name of a tensor's element type (``float``, ``bfloat16``, ``complex64``)."""
        return self.onnx_type.partition("(")[2].removesuffix(")")

    @cached_property
    def datatype(self) -> DataType | None:
        """The v2 datatype that carries it; None when there is none (a sequence, a complex number)."""
        return DATATYPES.get(_WIRE_NAME.get(self.element, "")) if self.is_tensor else None

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """``shape`` in Triton's spelling: -1 for every free dimension."""
        return tuple(dim if isinstance(dim, int) else -1 for dim in self.shape)

    @property
    def batchable(self) -> bool:
        """Whether the first dimension is free, so that it may be the batch dimension."""
        return bool(self.dims) and self.dims[0] == -1

    def __str__(self) -> str:
        spelled = self.datatype.name if self.datatype else self.onnx_type
        return f"'{self.name}' {spelled} {spell(self.dims)}" if self.is_tensor else f"'{self.name}' {spelled}"


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model file, in the file's order.

    ``initializers`` are inputs with a default value in the file: a request may leave them out.
    """

    inputs: dict[str, DeclaredTensor]
    outputs: dict[str, DeclaredTensor]
    initializers: dict[str, DeclaredTensor]

    @property
    def batchable(self) -> bool:
        """Triton's rule: a model can batch when the first dimension of every tensor is free."""
        tensors = (*self.inputs.values(), *self.outputs.values())
        return all(tensor.batchable for tensor in tensors if tensor.is_tensor)

    def feed(self, name: str) -> DeclaredTensor | None:
        """What a request may feed under ``name``: an input or an initializer."""
        return self.inputs.get(name) or self.initializers.get(name)


def read_signature(session: Any) -> Signature:
    """The signature of the model that an ``onnxruntime.InferenceSession`` holds."""
    return Signature(
        inputs=_declared(session.get_inputs()),
        outputs=_declared(session.get_outputs()),
        initializers=_declared(session.get_overridable_initializers()),
    )


def spell(dims: Iterable[int]) -> str:
    """A shape as Triton writes it: ``[-1,4]``."""
    return f"[{','.join(str(dim) for dim in dims)}]"


def _declared(arguments: Iterable[Any]) -> dict[str, DeclaredTensor]:
    return {item.name: DeclaredTensor(item.name, item.type, tuple(item.shape)) for item in arguments}
