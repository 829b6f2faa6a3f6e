"""InferRequest and InferResponse: what is asked and what is answered, whatever the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.errors import ServeError
from bident.wire.datatypes import DataType


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


class InferRequest:
    """One question to one model. Made by a door, completed by the engine, answered through ``reply``.

    ``reply`` is called on the event loop: exactly once for ordinary models, any number of times for
    decoupled ones, the last time with ``final`` set. ``outputs`` names what the client wants to
    have (None: everything). ``timeout_us`` and ``priority`` are 0 where the client set none. The
    engine sets ``batch_size`` (rows), ``signature`` (requests may share a batch when it is equal)
    and the clocks (monotonic nanoseconds); a door sets ``cancelled`` when the client has gone.
    """

    # Defaults live on the class: one is made per request, and most never differ from them.
    outputs: list[str] | None = None
    parameters: dict[str, Any] | None = None
    priority: int = 0
    timeout_us: int = 0
    batch_size: int = 1
    signature: object = None
    queued_ns: int = 0
    deadline_ns: int = 0
    cancelled: bool = False

    def __init__(
        self,
        model_name: str,
        model_version: str,
        request_id: str,
        inputs: dict[str, InferInput],
        reply: Callable[[InferResponse], None],
        received_ns: int,
    ) -> None:
        self.model_name = model_name
        self.model_version = model_version
        self.id = request_id
        self.inputs = inputs
        self.reply = reply
        self.received_ns = received_ns


class Column:
    """One output tensor of a whole executed batch, shared by the answers that are slices of it.

    ``rendered`` is a door's own form of the whole column, kept here so that it is made once however
    many answers slice it.
    """

    __slots__ = ("array", "datatype", "name", "rendered")

    def __init__(self, name: str, datatype: DataType, array: NDArray[Any]) -> None:
        self.name = name
        self.datatype = datatype
        self.array = array
        self.rendered: Any = None


class InferOutput:
    """One output tensor of one answer: rows ``start`` to ``stop`` of a batch's column.

    The first axis of ``column.array`` is the batch axis when ``stop`` is not -1; otherwise the
    column is the whole tensor.
    """

    __slots__ = ("column", "shape", "start", "stop")

    def __init__(self, column: Column, shape: tuple[int, ...], start: int, stop: int) -> None:
        self.column = column
        self.shape = shape
        self.start = start
        self.stop = stop

    @classmethod
    def whole(cls, name: str, datatype: DataType, array: NDArray[Any]) -> InferOutput:
        """An output that is not part of a larger batch."""
        return cls(Column(name, datatype, array), array.shape, 0, -1)

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def datatype(self) -> DataType:
        return self.column.datatype

    def array(self) -> NDArray[Any]:
        """This answer's tensor, a view on the batch's."""
        if self.stop == -1:
            return self.column.array
        return self.column.array[self.start : self.stop]


class InferResponse:
    """One answer. ``error`` set means the request failed and ``outputs`` is empty."""

    __slots__ = ("error", "final", "id", "model_name", "model_version", "outputs", "parameters")

    def __init__(
        self,
        model_name: str,
        model_version: str,
        request_id: str,
        outputs: list[InferOutput],
        parameters: dict[str, Any] | None = None,
        error: ServeError | None = None,
        final: bool = True,
    ) -> None:
        self.model_name = model_name
        self.model_version = model_version
        self.id = request_id
        self.outputs = outputs
        self.parameters = parameters
        self.error = error
        self.final = final

    @classmethod
    def failure(cls, request: InferRequest, error: ServeError) -> InferResponse:
        """The answer to a request that could not be served."""
        return cls(request.model_name, request.model_version, request.id, [], error=error)


def element_count(shape: tuple[int, ...]) -> int:
    """How many elements a tensor of ``shape`` has, as an unbounded integer (numpy's would wrap)."""
    count = 1
    for dim in shape:
        count *= dim
    return count


def zeros(datatype: DataType, shape: tuple[int, ...]) -> NDArray[Any]:
    """A tensor of zeros; empty strings for BYTES."""
    if datatype.size == 0:
        array = np.empty(shape, dtype=object)
        array.fill(b"")
        return array
    return np.zeros(shape, datatype.numpy)
