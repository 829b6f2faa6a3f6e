"""InferRequest and InferResponse: what is asked and what is answered, whatever the protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bident.errors import ServeError
from bident.wire.datatypes import DataType

if TYPE_CHECKING:
    from bident.wire.trace import Trace

RESERVED_PREFIX = "triton_"
"""Parameters that begin so mean something to the server: clients cannot make them up."""

_MOST_ELEMENTS = (2**63 - 1) // 8
"""As many elements of the widest datatype as numpy can count the bytes of."""


class InferInput:
    """One input tensor of a request.

    ``data`` is an array of exactly ``shape`` or, for small JSON tensors, the flat row-major list of
    its elements: the scheduler converts a whole batch of lists at once. A list's elements have been
    checked for type (a number where numbers belong) and count, not yet for range.
    """

    __slots__ = ("count", "data", "datatype", "name", "shape")

    def __init__(
        self, name: str, datatype: DataType, shape: tuple[int, ...], count: int, data: list[Any] | NDArray[Any]
    ) -> None:
        self.name = name
        self.datatype = datatype
        self.shape = shape
        self.count = count
        self.data = data


class Outcome(Enum):
    """What became of an answer: written, impossible to write, or known when ``InferResponse.settled`` is called."""

    ANSWERED = "answered"
    FAILED = "failed"
    LATER = "later"


class Spent:
    """Where the time of a request went that is answered by others: nanoseconds, added up over all of them."""

    __slots__ = ("infer_ns", "input_ns", "output_ns", "queue_ns")

    def __init__(self) -> None:
        self.queue_ns = 0
        self.input_ns = 0
        self.infer_ns = 0
        self.output_ns = 0

    def add(self, queue_ns: int, input_ns: int, infer_ns: int, output_ns: int, rows: int = 0) -> None:
        """Add one of them: its wait, what its batch took for inputs, in the model and for outputs, and its rows."""
        self.queue_ns += queue_ns
        self.input_ns += input_ns
        self.infer_ns += infer_ns
        self.output_ns += output_ns


class InferRequest:
    """One question to one model. Made by a door, completed by the engine, answered through ``reply``.

    ``reply`` is called on the event loop: exactly once for ordinary models, any number of times for
    decoupled ones, the last time with ``final`` set. ``outputs`` names what the client wants to
    have (None: everything). ``timeout_us``, ``priority`` and ``sequence_id`` are 0 where the client set
    none. The engine sets ``batch_size`` (rows), ``signature`` (requests may share a batch when it is equal)
    and the clocks (monotonic nanoseconds); a door sets ``cancelled`` when the client has gone. Who asks
    on behalf of another request sets ``spent``, to which this one's times are added, and
    ``may_lack_outputs`` if it can do without some of ``outputs``. ``trace`` is there if the request was sampled.
    """

    # Defaults live on the class: one is made per request, and most never differ from them.
    outputs: list[str] | None = None
    parameters: dict[str, Any] | None = None
    priority: int = 0
    timeout_us: int = 0
    sequence_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False
    batch_size: int = 1
    signature: object = None
    queued_ns: int = 0
    deadline_ns: int = 0
    cancelled: bool = False
    spent: Spent | None = None
    trace: Trace | None = None
    may_lack_outputs: bool = False
    reply: Callable[[InferResponse], Outcome]
    """Set by the door before the request is handed to the engine."""

    def __init__(
        self,
        model_name: str,
        model_version: str,
        request_id: str,
        inputs: dict[str, InferInput],
        received_ns: int,
    ) -> None:
        self.model_name = model_name
        self.model_version = model_version
        self.id = request_id
        self.inputs = inputs
        self.received_ns = received_ns


class Column:
    """One output tensor of a whole executed batch, shared by the answers that are slices of it.

    ``rendered`` and ``packed`` are the whole column as the JSON door and as the binary one write it,
    ``plain`` all columns of the batch (in its first) as the binary one does where they are small: kept
    here so that it is made once however many answers slice it.
    """

    rendered: Any = None
    packed: Any = None
    plain: Any = None

    def __init__(self, name: str, datatype: DataType, array: NDArray[Any]) -> None:
        self.name = name
        self.datatype = datatype
        self.array = array


class InferOutput:
    """One output tensor of one answer, by name, datatype and ``array``."""

    __slots__ = ("array", "datatype", "name")

    def __init__(self, name: str, datatype: DataType, array: NDArray[Any]) -> None:
        self.name = name
        self.datatype = datatype
        self.array = array


class InferResponse:
    """One answer: rows ``start`` to ``stop`` of a batch's ``columns``.

    The first axis of the columns is the batch axis, unless ``stop`` is -1: then the columns are
    whole. ``error`` set means that the request failed, and ``columns`` is empty. ``settled`` is for
    answers that are written later: the engine sets it, and the door says through it whether they were.
    """

    # Defaults live on the class: one is made per request, and most never differ from them.
    parameters: dict[str, Any] | None = None
    error: ServeError | None = None
    final: bool = True
    settled: Callable[[bool], None] | None = None

    def __init__(
        self, model_name: str, model_version: str, request_id: str, columns: Sequence[Column], start: int, stop: int
    ) -> None:
        self.model_name = model_name
        self.model_version = model_version
        self.id = request_id
        self.columns = columns
        self.start = start
        self.stop = stop

    @property
    def outputs(self) -> list[InferOutput]:
        """The output tensors, as views on the batch's columns."""
        if self.stop == -1:
            return [InferOutput(column.name, column.datatype, column.array) for column in self.columns]
        rows = slice(self.start, self.stop)
        return [InferOutput(column.name, column.datatype, column.array[rows]) for column in self.columns]

    @classmethod
    def failure(cls, request: InferRequest, error: ServeError) -> InferResponse:
        """The answer to a request that could not be served."""
        response = cls(request.model_name, request.model_version, request.id, [], 0, 0)
        response.error = error
        return response


def element_count(shape: tuple[int, ...]) -> int:
    """How many elements a tensor of ``shape`` has, as an unbounded integer (numpy's would wrap)."""
    count = 1
    for dim in shape:
        count *= dim
    return count


def is_addressable(shape: tuple[int, ...]) -> bool:
    """Whether an array can have ``shape``: even an empty one is bounded by its other dimensions."""
    return element_count(tuple(dim or 1 for dim in shape)) <= _MOST_ELEMENTS


def zeros(datatype: DataType, shape: tuple[int, ...]) -> NDArray[Any]:
    """A tensor of zeros; empty strings for BYTES."""
    if datatype.size == 0:
        array = np.empty(shape, dtype=object)
        array.fill(b"")
        return array
    return np.zeros(shape, datatype.numpy)
