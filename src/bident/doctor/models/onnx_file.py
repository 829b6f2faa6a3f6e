"""What an ONNX file declares, read without ONNX Runtime: making a session would already compute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from bident.backends.onnx.modelfile import Edition, edition
from bident.backends.onnx.signature import DeclaredTensor, Signature
from bident.backends.onnx.zipmap import without_zipmap
from bident.doctor.models.case import Case
from bident.model.files import LARGEST_PROTOBUF_BYTES


@dataclass(frozen=True)
class OnnxFile:
    """One ONNX model of a case. ``model`` is the ``onnx.ModelProto``, its external weights not read."""

    path: Path
    model: Any

    @property
    def graph(self) -> Any:
        return self.model.graph

    @cached_property
    def made_by(self) -> dict[str, Any]:
        """The node that makes each tensor."""
        return {name: node for node in self.graph.node for name in node.output}

    @cached_property
    def opset(self) -> int:
        """Of the standard operators; 0 where the file says none."""
        return max((entry.version for entry in self.model.opset_import if entry.domain in ("", "ai.onnx")), default=0)

    @cached_property
    def signature(self) -> Signature:
        """Its inputs and outputs, as ONNX Runtime would declare them; see :meth:`has_shape`."""
        defaults = {tensor.name for tensor in self.graph.initializer}
        inputs = [value for value in self.graph.input if value.name not in defaults]
        return Signature(
            inputs=_declared(inputs),
            outputs=_declared(self.graph.output),
            initializers=_declared(value for value in self.graph.input if value.name in defaults),
        )

    @cached_property
    def served(self) -> OnnxFile:
        """The model as it is served: with tensors in the place of its ZipMaps."""
        import onnx

        ends_in_zipmap = any(node.op_type == "ZipMap" for node in self.graph.node)
        rewritten = without_zipmap(self.path) if ends_in_zipmap else None
        return OnnxFile(self.path, onnx.load_from_string(rewritten.content)) if rewritten else self

    def has_shape(self, name: str) -> bool:
        """Whether the file says how many dimensions an input or output has."""
        for value in (*self.graph.input, *self.graph.output):
            if value.name == name:
                return bool(value.type.tensor_type.HasField("shape"))
        return False


def onnx_files(case: Case) -> Iterator[OnnxFile]:
    """The legible ONNX models of a case that is served by ONNX Runtime, oldest version first."""
    yield from _legible(_paths(case))


def newest_onnx(case: Case) -> OnnxFile | None:
    """The last of :func:`onnx_files`; the versions before it are not read."""
    return next(_legible(reversed(_paths(case))), None)


def _paths(case: Case) -> list[Path]:
    return list(case.model_files()) if case.backend == "onnxruntime" else []


def _legible(paths: Iterable[Path]) -> Iterator[OnnxFile]:
    yield from filter(None, map(read_onnx, paths))


def read_onnx(path: Path) -> OnnxFile | None:
    """The model at ``path``; None where it is no whole ONNX model. The last one is kept: many checks look at it."""
    try:
        return _read(edition(path))
    except OSError:
        return None


@lru_cache(maxsize=1)
def _read(file: Edition) -> OnnxFile | None:
    name, _, size, _ = file
    if not 0 < size < LARGEST_PROTOBUF_BYTES:
        return None
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(name, format="protobuf", load_external_data=False)
    except (DecodeError, ValueError, OSError, RecursionError):
        return None
    return OnnxFile(Path(name), model) if model.HasField("graph") and model.ir_version else None


def _declared(values: Iterable[Any]) -> dict[str, DeclaredTensor]:
    return {value.name: DeclaredTensor(value.name, _spelled(value.type), _shape(value.type)) for value in values}


def _shape(kind: Any) -> tuple[int | str | None, ...]:
    dims = kind.tensor_type.shape.dim if kind.WhichOneof("value") == "tensor_type" else ()
    return tuple(dim.dim_value if dim.WhichOneof("value") == "dim_value" else dim.dim_param or None for dim in dims)


def _spelled(kind: Any) -> str:
    """A type as ONNX Runtime spells it: ``tensor(float)``, ``seq(map(int64,tensor(float)))``."""
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        return f"tensor({_element(kind.tensor_type.elem_type)})"
    if which == "sequence_type":
        return f"seq({_spelled(kind.sequence_type.elem_type)})"
    if which == "map_type":
        return f"map({_element(kind.map_type.key_type)},{_spelled(kind.map_type.value_type)})"
    if which == "optional_type":
        return f"optional({_spelled(kind.optional_type.elem_type)})"
    return f"sparse_tensor({_element(kind.sparse_tensor_type.elem_type)})" if which else "unknown"


def _element(number: int) -> str:
    import onnx

    names = onnx.TensorProto.DataType
    return names.Name(number).lower() if number in names.values() else str(number)
