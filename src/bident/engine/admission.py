"""Checks a request against its model's declaration, before it may queue.

The checks and their words are Triton's (``infer_request.cc``, Normalize): clients match on the
fragments. What a model's declaration fixes is worked out once, in :class:`Admission`.
"""

from __future__ import annotations

from collections.abc import Collection

from bident.errors import ServeError, invalid_arg
from bident.model.config import ModelConfig, TensorSpec
from bident.model.hints import closest
from bident.wire.infer import InferInput, InferRequest
from bident.wire.shown import listed, shown

_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size puts a batch dimension in front of every shape: one row of [4] is [1,4]. "
    "With max_batch_size 0 in config.pbtxt, shapes are as declared."
)


class Admission:
    """The gate of one model: completes ``batch_size`` and ``signature`` or raises INVALID_ARG."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._inputs = config.inputs
        self._required = config.required_inputs
        self._names = config.inputs.keys()
        self._outputs = config.outputs.keys()
        self._batching = config.max_batch_size > 0
        self._ragged = {name for name, spec in config.inputs.items() if spec.allow_ragged_batch}
        self._uniform = not any(
            spec.optional or (-1 in spec.dims and not spec.allow_ragged_batch) for spec in config.inputs.values()
        )
        """Whether all valid requests can share a batch, which spares each one a signature."""

    def admit(self, request: InferRequest) -> None:
        """Validate ``request`` and set its ``batch_size`` and ``signature``."""
        inputs = request.inputs
        if len(inputs) != len(self._inputs) or inputs.keys() != self._names:
            self._check_names(request)
        if self._batching:
            self._admit_batch(request)
        else:
            for tensor in request.inputs.values():
                spec = self._inputs[tensor.name]
                if tensor.datatype is not spec.datatype:
                    raise self._wrong_datatype(request, tensor, spec)
                if tensor.shape != spec.dims and not _fits(tensor.shape, spec.dims):
                    raise self._wrong_shape(request, tensor, spec)
        if request.outputs is not None:
            for name in request.outputs:
                if name not in self._outputs:
                    raise self._unknown_output(name)

    def _admit_batch(self, request: InferRequest) -> None:
        batch_size = -1
        for tensor in request.inputs.values():
            spec = self._inputs[tensor.name]
            if tensor.datatype is not spec.datatype:
                raise self._wrong_datatype(request, tensor, spec)
            shape = tensor.shape
            if not shape:
                raise _core(
                    request,
                    f"input '{tensor.name}' has no shape but model requires batch dimension for '{self._config.name}'",
                )
            if shape[1:] != spec.dims and not _fits(shape[1:], spec.dims):
                raise self._wrong_shape(request, tensor, spec)
            if batch_size < 0:
                batch_size = shape[0]
            elif batch_size != shape[0]:
                raise _core(
                    request,
                    f"input '{tensor.name}' batch size does not match other inputs for "
                    f"'{self._config.name}': got {shape[0]}, the inputs before it have {batch_size}",
                )
        if batch_size < 0:  # every input is optional and left out: nothing says otherwise, so one row
            batch_size = 1
        if batch_size < 1 or batch_size > self._config.max_batch_size:
            self._refuse_batch_size(request, batch_size)
        request.batch_size = batch_size
        if not self._uniform:
            request.signature = tuple(
                (tensor.name, None if tensor.name in self._ragged else tensor.shape[1:])
                for tensor in request.inputs.values()
            )

    def _refuse_batch_size(self, request: InferRequest, batch_size: int) -> None:
        name = self._config.name
        if batch_size < 1:
            raise _core(request, f"inference request batch-size must be >= 1 for '{name}': an input has an empty batch")
        raise _core(
            request,
            f"inference request batch-size must be <= {self._config.max_batch_size} for '{name}'; "
            f"send smaller batches, or raise max_batch_size (got {batch_size})",
        )

    def _check_names(self, request: InferRequest) -> None:
        given = request.inputs.keys()
        name = self._config.name
        unknown = next((given_name for given_name in given if given_name not in self._names), None)
        if unknown is not None:
            problem = (
                f"unexpected inference input {shown(unknown)} for model '{name}'{_hint(unknown, self._names)} "
                f"(its inputs: {listed(self._names)})"
            )
            if len(given) > len(self._names):
                problem = f"expected {self._wanted()} but got {len(given)} inputs for model '{name}': {problem}"
            raise invalid_arg(problem)
        missing = [needed for needed in self._names if needed in self._required and needed not in given]
        if not missing:
            return
        raise _core(
            request,
            f"expected {self._wanted()} but got {len(given)} inputs for model '{name}'. "
            f"Got input(s) [{listed(given)}], but missing required input(s) [{listed(missing)}]. "
            f"Please provide all required input(s).",
        )

    def _wanted(self) -> str:
        """How many inputs a request may have."""
        if len(self._required) < len(self._names):
            return f"number of inputs between {len(self._required)} and {len(self._names)}"
        return f"{len(self._names)} inputs"

    def _wrong_datatype(self, request: InferRequest, tensor: InferInput, spec: TensorSpec) -> ServeError:
        return _core(
            request,
            f"inference input '{tensor.name}' data-type is '{tensor.datatype.name}', but model "
            f"'{self._config.name}' expects '{spec.datatype.name}'",
        )

    def _wrong_shape(self, request: InferRequest, tensor: InferInput, spec: TensorSpec) -> ServeError:
        expected = [-1, *spec.dims] if self._batching else list(spec.dims)
        note = f" {_BATCH_NOTE}" if self._batching else ""
        return _core(
            request,
            f"unexpected shape for input '{tensor.name}' for model '{self._config.name}'. Expected "
            f"{_compact(expected)}, got {_compact(list(tensor.shape))}.{note}",
        )

    def _unknown_output(self, name: str) -> ServeError:
        return invalid_arg(
            f"unexpected inference output {shown(name)} for model '{self._config.name}'{_hint(name, self._outputs)} "
            f"(its outputs: {listed(self._outputs)})"
        )


def _hint(word: str, known: Collection[str]) -> str:
    near = closest(word, known)
    return "" if near is None else f"; did you mean '{near}'?"


def _core(request: InferRequest, message: str) -> ServeError:
    """Triton's core prefixes its messages with the request's id."""
    return invalid_arg(f"[request id: {shown(request.id)[1:-1] or '<id_unknown>'}] {message}")


def _fits(shape: tuple[int, ...], dims: tuple[int, ...]) -> bool:
    return len(shape) == len(dims) and all(dim in (-1, size) for dim, size in zip(dims, shape, strict=True))


def _compact(shape: list[int]) -> str:
    return "[" + ",".join(str(dim) for dim in shape) + "]"
