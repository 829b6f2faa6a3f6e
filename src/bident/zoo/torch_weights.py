"""Reads tensors out of a PyTorch checkpoint without PyTorch, and without running what it says.

A checkpoint is a pickle, and a pickle is a program: unpickling one from a stranger hands over the
process. The reader here lets a pickle name four things (a dict class, the tensor constructor and
two storage types) and answers them with inert stand-ins of its own, so no callable of the outside
world can be reached. Sizes and offsets are checked against the file before memory is touched. The
file's sha256 is pinned by the recipe as well; either barrier alone would do.

The format is the one ``torch.save`` wrote before 1.6, which is what old wheels hold: pickles of a
magic number, a protocol version, system facts, the state dict and the order of the storages; then,
for each storage, an int64 element count and its raw elements.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bident.errors import ServeError, invalid_arg
from bident.wire.infer import element_count

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype[Any]


class _View(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _view(storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_rest: object) -> _View:
    return _View(storage, offset, tuple(shape), tuple(strides))


class _InertUnpickler(pickle.Unpickler):
    """Knows the few names of a state dict and refuses every other."""

    _names: dict[tuple[str, str], Any] = {  # noqa: RUF012 - never changed
        ("collections", "OrderedDict"): OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): _view,
        ("torch", "FloatStorage"): np.dtype("<f4"),
        ("torch", "LongStorage"): np.dtype("<i8"),
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._names[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for '{module}.{name}', which no tensor needs") from None

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key = pid[:3]
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise pickle.UnpicklingError(f"it refers to a '{kind}' instead of a tensor storage")
        return _Storage(str(key), dtype)


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """The state dict in ``path``, by name. Raises INVALID_ARG when it holds anything but tensors."""
    with path.open("rb") as file:
        try:
            return _read(file, path.stat().st_size)
        except ServeError:
            raise
        except Exception as error:  # a hostile pickle can raise anything
            raise invalid_arg(f"{path.name} is not a plain checkpoint of tensors: {error}") from error


def _read(file: BinaryIO, size: int) -> dict[str, NDArray[Any]]:
    magic, protocol, _system, state, keys = (_InertUnpickler(file).load() for _ in range(5))
    if (magic, protocol) != (_MAGIC, _PROTOCOL):
        raise invalid_arg("not a checkpoint in the format that torch.save wrote before 1.6")
    views: dict[str, _View] = dict(state)
    dtypes = {view.storage.key: view.storage.dtype for view in views.values()}
    storages = {key: _read_storage(file, dtypes[key], size) for key in keys}
    return {name: _tensor(name, view, storages[view.storage.key]) for name, view in views.items()}


def _read_storage(file: BinaryIO, dtype: np.dtype[Any], size: int) -> NDArray[Any]:
    count = int.from_bytes(file.read(8), "little", signed=True)
    if not 0 <= count * dtype.itemsize <= size - file.tell():
        raise invalid_arg(f"a storage claims {count} elements, more than the file holds")
    return np.frombuffer(file.read(count * dtype.itemsize), dtype)


def _tensor(name: str, view: _View, storage: NDArray[Any]) -> NDArray[Any]:
    """The part of ``storage`` that ``view`` means. numpy refuses offsets and strides that lead out of it."""
    if element_count(view.shape) > len(storage):
        raise invalid_arg(f"tensor '{name}' claims shape {list(view.shape)}, more than its storage holds")
    size = storage.itemsize
    strides = [stride * size for stride in view.strides]
    return np.ndarray(view.shape, storage.dtype, storage.data, view.offset * size, strides)
