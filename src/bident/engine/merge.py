"""Requests to one batch, one batch to answers: tensors are joined once and split once.

``Merge.gather`` turns the inputs of a batch's requests into the arrays an instance sees;
``Merge.scatter`` turns the arrays it returned into one :class:`~bident.wire.infer.Column` per
output, of which each answer is a slice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.errors import Code, ServeError
from bident.model.config import ModelConfig, TensorSpec
from bident.model.hints import listed
from bident.wire.datatypes import BYTES, FP32, DataType, from_numpy
from bident.wire.infer import Column, InferInput, InferRequest, element_count
from bident.wire.numbers import to_array

_NEVER = np.dtype("V1")
"""What no output has: BYTES is never settled by its dtype, its elements have to be looked at."""


class Merge:
    """Joins and splits the tensors of one model. What its config fixes is worked out once, here."""

    def __init__(self, config: ModelConfig, *, lenient: bool = False) -> None:
        """``lenient``: make the best of outputs that say the same in another form, as Python models' often do."""
        self.model = config.name
        self.is_batching = config.max_batch_size > 0
        self._lenient = lenient
        self._cure = "correct model.py or config.pbtxt" if lenient else "correct config.pbtxt"
        self.undeclared: Sequence[str] = ()
        """The outputs that ``scatter`` last dropped, because the config does not declare them."""
        self._lead = 1 if config.max_batch_size else 0
        self.output_names = list(config.outputs)
        self._reshaped = [(name, spec) for name, spec in config.inputs.items() if spec.reshape is not None]
        self._outputs = [
            (spec.name, spec, _NEVER if spec.datatype is BYTES else spec.datatype.numpy, spec.model_dims)
            for spec in config.outputs.values()
        ]

    def gather(self, requests: list[InferRequest], rows: int) -> dict[str, NDArray[Any]]:
        """The batch's input arrays by name, in the model's own shapes.

        For a batching model the first axis has ``rows`` entries. All requests carry the same inputs
        (the batch policy saw to that). Raises INVALID_ARG when a JSON number is out of range.
        """
        first = requests[0].inputs
        if len(requests) == 1:
            arrays = {name: single(tensor) for name, tensor in first.items()}
        else:
            arrays = {name: joined(name, tensor, requests, rows) for name, tensor in first.items()}
        if self._reshaped:
            self.reshape_inputs(arrays)
        return arrays

    def reshape_inputs(self, arrays: dict[str, NDArray[Any]], but: Collection[str] = ()) -> None:
        """Give the inputs in ``arrays`` the shapes that the model has, other than its clients."""
        for name, spec in self._reshaped:
            if name in arrays and name not in but:
                arrays[name] = self._reshape(arrays[name], spec.dims, spec.model_dims)

    def scatter(self, arrays: dict[str, NDArray[Any]], rows: int) -> list[Column]:
        """The outputs of one execution, in declared order, in the client's shapes.

        Raises INTERNAL naming the output when the model returned a datatype or shape other than the
        declared one: an answer's datatype word always matches its bytes.
        """
        if not isinstance(arrays, dict):
            raise ServeError(
                Code.INTERNAL,
                f"model '{self.model}' returned a {type(arrays).__name__}, not a dict of arrays by output name",
            )
        columns: list[Column] = []
        lead = (rows,) if self._lead else ()
        for name, spec, dtype, dims in self._outputs:
            array = arrays.get(name)
            if array is None:
                continue
            if type(array) is not np.ndarray or array.dtype != dtype:
                array = self.conform(spec, array)
            expected = lead + dims
            if array.shape != expected:
                array = self._shaped(spec, array, expected)
            if spec.reshape is not None:
                array = self._reshape(array, dims, spec.dims)
            columns.append(Column(name, spec.datatype, array))
        if len(columns) == len(arrays):
            self.undeclared = ()
        else:
            given = {column.name for column in columns}
            self.undeclared = [name for name in arrays if name not in given]
        return columns

    def conform(self, spec: TensorSpec, given: Any) -> NDArray[Any]:
        """What a model gave for an output, as doors take it: an array of exactly the datatype's elements.

        Raises INTERNAL when it is none.
        """
        name, datatype = spec.name, spec.datatype
        if not isinstance(given, np.ndarray | np.generic):
            raise self._bad_output(name, f"is a {type(given).__name__}", f"an array of {datatype.name}")
        if self._lenient:
            given = _cast(given, datatype)
        if from_numpy(given.dtype) is not datatype:
            raise self._bad_output(name, f"has datatype {_word(given.dtype)}", datatype.name)
        if datatype is not BYTES:
            return np.asarray(given, dtype=datatype.numpy)
        try:
            return _as_bytes(np.asarray(given))
        except ValueError as error:
            raise self._bad_output(name, str(error), "BYTES, which is bytes or text") from None

    def _reshape(self, array: NDArray[Any], dims: tuple[int, ...], wanted: tuple[int, ...]) -> NDArray[Any]:
        """``array``, whose shape without the batch is ``dims``, in the shape ``wanted``, wildcards kept in order."""
        shape = array.shape
        if -1 in wanted:
            sizes = iter([size for dim, size in zip(dims, shape[self._lead :], strict=True) if dim == -1])
            wanted = tuple(next(sizes) if dim == -1 else dim for dim in wanted)
        return array.reshape(shape[: self._lead] + wanted)

    def _shaped(self, spec: TensorSpec, array: NDArray[Any], expected: tuple[int, ...]) -> NDArray[Any]:
        """``array`` if it has the shape ``expected``, in which -1 is any size. Raises INTERNAL if it has not.

        Where it is lenient, as many elements in another shape will do, if every size is declared.
        """
        shape = array.shape
        if len(shape) == len(expected) and all(want in (-1, have) for want, have in zip(expected, shape, strict=True)):
            return array
        if self._lenient and -1 not in expected and element_count(expected) == array.size:
            return array.reshape(expected)
        raise self._bad_output(spec.name, f"has shape {list(shape)}", str(list(expected)))

    def _bad_output(self, name: str, found: str, declared: str) -> ServeError:
        return ServeError(
            Code.INTERNAL,
            f"output '{name}' of model '{self.model}' {found}, but its config declares {declared}; {self._cure}",
        )


def single(tensor: InferInput) -> NDArray[Any]:
    """One input as an array. Raises INVALID_ARG when a JSON number is out of range."""
    data = tensor.data
    if type(data) is list:
        return to_array(tensor.name, tensor.datatype, data).reshape(tensor.shape)
    return data  # type: ignore[return-value]


def joined(name: str, first: InferInput, requests: list[InferRequest], rows: int) -> NDArray[Any]:
    """The input ``name`` of all ``requests``, which has the shape of ``first`` but for the first axis."""
    tensors = [request.inputs[name] for request in requests]
    values: list[Any] = []
    for tensor in tensors:
        if type(tensor.data) is not list:
            return np.concatenate([single(tensor) for tensor in tensors])
        values += tensor.data
    return to_array(name, first.datatype, values).reshape((rows, *first.shape[1:]))


def _cast(given: NDArray[Any] | np.generic, datatype: DataType) -> NDArray[Any] | np.generic:
    """``given`` as ``datatype`` where that loses no value: numpy makes FP64 and INT64 of what nobody typed."""
    wanted = datatype.numpy
    if given.dtype == np.float64 and datatype is FP32:
        with np.errstate(over="ignore"):
            cast = np.asarray(given, dtype=wanted)
        # A number too large for FP32 must not become infinity.
        return cast if np.array_equal(np.isinf(cast), np.isinf(given)) else given
    if given.dtype.kind in "iu" and wanted.kind in "iu" and datatype is not BYTES:
        limits = np.iinfo(wanted)
        if not given.size or (int(given.min()) >= limits.min and int(given.max()) <= limits.max):
            return np.asarray(given, dtype=wanted)
    return given


def _as_bytes(array: NDArray[Any]) -> NDArray[Any]:
    """Strings of any kind as an object array of ``bytes``; ValueError says which element is none."""
    elements = array.reshape(-1).tolist()
    if array.dtype.kind == "O" and all(type(element) is bytes for element in elements):
        return array
    converted: NDArray[Any] = np.empty(len(elements), dtype=object)
    for index, element in enumerate(elements):
        try:
            converted[index] = element.encode() if isinstance(element, str) else bytes(memoryview(element))
        except (TypeError, UnicodeEncodeError):
            raise ValueError(f"holds {type(element).__name__} {str(element)[:40]!a} at element {index}") from None
    return converted.reshape(array.shape)


def _word(dtype: np.dtype[Any]) -> str:
    datatype = from_numpy(dtype)
    return datatype.name if datatype else str(dtype)


def wanted_columns(request: InferRequest, columns: Sequence[Column], undeclared: Sequence[str] = ()) -> list[Column]:
    """The columns that ``request`` names, in its order.

    Raises INTERNAL when it asks for an output that the model did not produce and it cannot do without;
    ``undeclared`` are outputs that the model did produce, though its config does not declare them.
    """
    by_name = {column.name: column for column in columns}
    if request.may_lack_outputs:
        return [by_name[name] for name in request.outputs or () if name in by_name]
    try:
        return [by_name[name] for name in request.outputs or ()]
    except KeyError as missing:
        given = [*by_name, *undeclared]
        name = missing.args[0]
        raise ServeError(
            Code.INTERNAL,
            f"model '{request.model_name}' produced no output '{name}', which the request asks for; "
            f"it produced {listed(given)}",
        ) from None
