"""Tensors that lie in files of a model's folder: what states start with, and what warmup samples ask.

Numbers are little-endian, strings as in a request's binary part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bident.errors import ConfigError, ServeError
from bident.model.files import read_file
from bident.wire.datatypes import BYTES, DataType
from bident.wire.infer import element_count
from bident.wire.tensor import unpack

MOST_BYTES = 1 << 30
"""A config cannot ask for a larger tensor, wherever its elements come from."""


def read_tensor(path: Path, setting: str, name: str, datatype: DataType, shape: tuple[int, ...]) -> NDArray[Any]:
    """The tensor ``name`` of ``shape`` in the file that ``setting`` (a field of the config) names.

    Raises ConfigError, in Triton's words, when the file is missing or too short. As with Triton numbers may be
    followed by anything.
    """
    count = element_count(shape)
    try:
        data = read_file(path)
    except OSError as error:
        raise ConfigError(
            f"failed to open text file for read {path}: {error.strerror} ({setting} of '{name}'); put the file there, "
            "or write zero_data: true"
        ) from None
    if datatype is not BYTES:
        expected = count * datatype.size
        if len(data) < expected:
            raise ConfigError(
                f"{setting} setting expects {expected} bytes, but the data provided from {path.name} only has "
                f"{len(data)} bytes: '{name}' has the shape {list(shape)} of {datatype.name}"
            )
        data = data[:expected]
    try:
        return unpack(name, datatype, shape, count, data)
    except ServeError as error:
        raise ConfigError(f"{error.message} (in {path})") from None
