"""Batches of requests whose inputs have different shapes: joined flat, with tensors that tell what is whose.

As with Triton a model sees the elements of a ragged input one request behind the other, in one
dimension, and finds its way by the inputs that ``batch_input`` has computed of the shapes. The kinds
are those of Triton's ``model_config.proto``; shapes and counts include the batch dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.engine.merge import Merge, joined, single
from bident.errors import Code, ServeError
from bident.model.config import ModelConfig, TensorSpec
from bident.model.ragged import Ragged
from bident.wire.infer import Column, InferRequest, element_count


class RaggedMerge(Merge):
    """Joins and splits the tensors of a model that allows ragged batches."""

    def __init__(self, config: ModelConfig, ragged: Ragged) -> None:
        super().__init__(config)
        self._ragged = ragged
        self._specs = {name: config.outputs[name] for name in ragged.scattered}

    def gather(self, requests: list[InferRequest], rows: int) -> dict[str, NDArray[Any]]:
        """The batch's input arrays by name: ragged ones in one dimension, and those computed of them."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, tensor in requests[0].inputs.items():
            if name in self._ragged.inputs:
                parts = [single(request.inputs[name]).reshape(-1) for request in requests]
                arrays[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
            else:
                arrays[name] = single(tensor) if len(requests) == 1 else joined(name, tensor, requests, rows)
        self.reshape_inputs(arrays, but=self._ragged.inputs)
        for computed in self._ragged.computed:
            given = [request.inputs.get(computed.source) for request in requests]
            shapes = [tensor.shape for tensor in given if tensor is not None]
            array = np.asarray(_KINDS[computed.kind](shapes), dtype=computed.datatype.numpy)
            arrays.update(dict.fromkeys(computed.names, array))
        return arrays

    def scatter_apart(
        self, arrays: dict[str, NDArray[Any]], requests: Sequence[InferRequest], rows: int
    ) -> list[list[Column]] | None:
        """The outputs of each request, None where all of them are rows that :meth:`scatter` can lay out.

        Raises INTERNAL when an output has not as many elements as the inputs that say its shape.
        """
        if not self._specs:
            return None
        whole = {name: array for name, array in arrays.items() if name not in self._specs}
        columns = self.scatter(whole, rows)
        parts = [self._parts(spec, arrays[name], requests) for name, spec in self._specs.items() if name in arrays]
        apart: list[list[Column]] = []
        start = 0
        for index, request in enumerate(requests):
            own = slice(start, start + request.batch_size) if self.is_batching else slice(None)
            cut = [Column(column.name, column.datatype, column.array[own]) for column in columns]
            by_name = {column.name: column for column in [*cut, *(part[index] for part in parts)]}
            apart.append([by_name[name] for name in self.output_names if name in by_name])
            start += request.batch_size
        return apart

    def _parts(self, spec: TensorSpec, given: NDArray[Any], requests: Sequence[InferRequest]) -> list[Column]:
        """The part of each request in an output that is as long as the input it goes by."""
        array = self.conform(spec, given).reshape(-1)
        source = self._ragged.scattered[spec.name]
        shapes = [self._shape(spec, request.inputs[source].shape) for request in requests]
        counts = [element_count(shape) for shape in shapes]
        if sum(counts) != array.size:
            raise ServeError(
                Code.INTERNAL,
                f"output '{spec.name}' of model '{self.model}' has {array.size} elements, but by the shapes of input "
                f"'{source}' in the {len(requests)} requests of the batch it should have {sum(counts)}",
            )
        ends = list(accumulate(counts))
        return [
            Column(spec.name, spec.datatype, array[end - count : end].reshape(shape))
            for end, count, shape in zip(ends, counts, shapes, strict=True)
        ]

    def _shape(self, spec: TensorSpec, source: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one request's part: sizes that are not declared are those of the input, as in Triton."""
        dims = (-1, *spec.dims) if self.is_batching else spec.dims
        padded = [*source, *[1] * len(dims)]
        return tuple(padded[axis] if dim == -1 else dim for axis, dim in enumerate(dims))


def merge_of(config: ModelConfig) -> Merge:
    """What joins and splits the tensors of a model."""
    return Merge(config) if config.ragged is None else RaggedMerge(config, config.ragged)


Shapes = list[tuple[int, ...]]


def _counts(shapes: Shapes) -> list[int]:
    return [element_count(shape) for shape in shapes]


def _item_shapes(shapes: Shapes) -> list[tuple[int, ...]]:
    return [shape[1:] for shape in shapes for _ in range(shape[0])]


_KINDS: dict[str, Callable[[Shapes], Any]] = {
    "BATCH_ELEMENT_COUNT": _counts,
    "BATCH_ACCUMULATED_ELEMENT_COUNT": lambda shapes: list(accumulate(_counts(shapes))),
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": lambda shapes: list(accumulate(_counts(shapes), initial=0)),
    # Only how long it is says something. Triton leaves the elements as they come.
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": lambda shapes: np.zeros(max(_counts(shapes), default=0)),
    "BATCH_ITEM_SHAPE": _item_shapes,
    "BATCH_ITEM_SHAPE_FLATTEN": lambda shapes: [size for shape in _item_shapes(shapes) for size in shape],
}
