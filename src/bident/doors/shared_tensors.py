"""Tensors in shared memory, whatever the door: inputs that are read from it, outputs that are written to it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from bident.engine.shared_memory import Window
from bident.errors import Code, ServeError, invalid_arg
from bident.wire.datatypes import DataType
from bident.wire.infer import InferInput, InferOutput
from bident.wire.shown import shown
from bident.wire.tensor import check_size, pack, unpack

COPY_HERE = 1 << 20
"""Up to this many bytes of a request or of an output the event loop copies itself."""
_MOST_BYTES = 2**31 - 1
"""What one request may have copied: as much as it could send."""


class SharedInput(NamedTuple):
    """An input whose elements are still to be read from ``view``."""

    tensor: InferInput
    view: Window


def bytes_to_read(shared: Sequence[SharedInput]) -> int:
    """How much there is to copy for the inputs of a request. Raises INVALID_ARG where that is too much."""
    size = sum(item.view.size for item in shared)
    if size > _MOST_BYTES:
        raise invalid_arg(f"the inputs of a request can be {_MOST_BYTES} bytes in shared memory, got {size}")
    return size


def read_inputs(shared: Sequence[SharedInput], declared: Container[str]) -> None:
    """Read those of the inputs that the model has (``declared``); the others are refused unread, when it is asked.

    Raises as :func:`read_input`.
    """
    for tensor, view in shared:
        if tensor.name in declared:
            tensor.data = read_input(tensor.name, tensor.datatype, tensor.shape, tensor.count, view)


def read_input(name: str, datatype: DataType, shape: tuple[int, ...], count: int, view: Window) -> NDArray[Any]:
    """The input ``name`` of ``shape`` (``count`` elements), whose bytes are exactly those of ``view``.

    Raises INVALID_ARG where they are not such a tensor, or are there no more.
    """
    check_size(name, datatype, shape, count, view.size)
    return unpack(name, datatype, shape, count, view.read())


def write_output(output: InferOutput, view: Window) -> int:
    """Put ``output`` at the beginning of ``view``; returns how many bytes it has.

    Raises INTERNAL, as Triton does, where it does not fit.
    """
    data = pack(output.array, output.datatype)
    size = len(data)
    if size > view.size:
        raise ServeError(
            Code.INTERNAL,
            f"shared memory size specified with the request for output {shown(output.name)} ({view.size} bytes) should "
            f"be at least {size} bytes to hold the results",
        )
    view.write(data)
    return size
