"""Answers kept for the same question: the response cache, with which questions are the same.

One cache for the whole server, bounded in bytes; what was used longest ago goes first. Whoever
fills it has entries of its own that nobody else sees, and that go when it goes. Used on the event loop only.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bident.wire.datatypes import BYTES, DataType
from bident.wire.infer import Column, InferRequest, InferResponse
from bident.wire.numbers import to_array
from bident.wire.tensor import pack

_ENTRY_BYTES = 400
"""What an entry takes beside its tensors: its key, and its place in the order."""
_TENSOR_BYTES = 256
"""What a tensor takes beside its elements."""


class _Tensor(NamedTuple):
    name: str
    datatype: DataType
    array: NDArray[Any]


class Entry(NamedTuple):
    """One answer without its request's id: whole tensors that belong to nobody else, and parameters."""

    tensors: Sequence[_Tensor]
    parameters: dict[str, Any] | None
    size: int

    def columns(self) -> list[Column]:
        """The tensors as an answer has them. What a door keeps with a column does not stay in the cache."""
        return [Column(*tensor) for tensor in self.tensors]


class ResponseCache:
    """At most ``size`` bytes of answers (``--cache-config local,size=BYTES``)."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self.evictions = 0
        self._entries: OrderedDict[tuple[Hashable, bytes], Entry] = OrderedDict()

    @property
    def count(self) -> int:
        """How many answers are kept."""
        return len(self._entries)

    def lookup(self, owner: Hashable, key: bytes) -> Entry | None:
        """The answer that ``owner`` has kept under ``key``, which is now the last one to go."""
        entry = self._entries.get((owner, key))
        if entry is not None:
            self._entries.move_to_end((owner, key))
        return entry

    def insert(self, owner: Hashable, key: bytes, response: InferResponse) -> bool:
        """Keep a copy of ``response``. Returns whether that was done: not if it is there, or larger than the cache."""
        place = (owner, key)
        if place in self._entries:
            return False
        size = _size_of(response)
        if size > self.size:
            return False
        while self.used + size > self.size:
            _, oldest = self._entries.popitem(last=False)
            self.used -= oldest.size
            self.evictions += 1
        tensors = [_Tensor(output.name, output.datatype, _own(output.array)) for output in response.outputs]
        parameters = dict(response.parameters) if response.parameters else None
        self._entries[place] = Entry(tensors, parameters, size)
        self.used += size
        return True

    def forget(self, owner: Hashable) -> None:
        """Drop all that ``owner`` has kept."""
        for place in [place for place in self._entries if place[0] == owner]:
            self.used -= self._entries.pop(place).size


def key_of(request: InferRequest) -> bytes:
    """What tells ``request`` from others to the same model: a digest of all that a model can see but its id.

    Those are the inputs (names, datatypes, shapes, elements; it is the same whether they came as JSON
    or binary), the outputs that are wanted, the parameters and the sequence. Small JSON tensors, which
    are lists, become arrays. Raises INVALID_ARG when one of their numbers does not fit its datatype.
    """
    digest = sha256()
    for name in sorted(request.inputs):
        tensor = request.inputs[name]
        if type(tensor.data) is list:
            tensor.data = to_array(name, tensor.datatype, tensor.data).reshape(tensor.shape)
        data = pack(np.asarray(tensor.data), tensor.datatype)
        # The length of what follows goes before it, so that no two requests read the same.
        digest.update(_described(name, tensor.datatype.name, tensor.shape, len(data)))
        digest.update(data)
    parameters = sorted(request.parameters.items()) if request.parameters else None
    sequence = (request.sequence_id, request.sequence_start, request.sequence_end)
    digest.update(_described(request.outputs, parameters, sequence))
    return digest.digest()


def _described(*values: object) -> bytes:
    return repr(values).encode("utf-8", "surrogatepass")


def _size_of(response: InferResponse) -> int:
    """The bytes of memory that a copy of ``response`` takes."""
    size = _ENTRY_BYTES + (len(repr(response.parameters)) if response.parameters else 0)
    for output in response.outputs:
        size += _TENSOR_BYTES + output.array.nbytes
        if output.datatype is BYTES:
            size += sum(map(sys.getsizeof, output.array.reshape(-1).tolist()))
    return size


def _own(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that holds no batch's memory, and that nobody can change."""
    copy = np.array(array, order="C")
    copy.flags.writeable = False
    return copy
