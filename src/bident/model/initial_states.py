"""What the implicit states of a model are when a sequence starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bident.errors import ConfigError, ServeError
from bident.model.config import ModelConfig
from bident.model.files import read_file
from bident.model.sequence_batching import INITIAL_STATE_FOLDER, State
from bident.wire.datatypes import BYTES
from bident.wire.infer import element_count, is_addressable, zeros
from bident.wire.tensor import unpack

_MOST_BYTES = 1 << 30


def load(directory: Path, config: ModelConfig) -> dict[str, NDArray[Any]]:
    """The first value of each state, by its input's name, read-only; one row where the model batches.

    Numbers in files are little-endian, strings as in a request's binary part. Raises ConfigError when
    a file is missing or too short.
    """
    batching = config.sequence_batching
    states = batching.states if batching is not None else ()
    return {state.input_name: _first(directory, config, state) for state in states}


def _first(directory: Path, config: ModelConfig, state: State) -> NDArray[Any]:
    shape = ((1,) if config.max_batch_size else ()) + state.initial.dims
    count = element_count(shape)
    size = count * (state.datatype.size or 8)
    if not is_addressable(shape) or size > _MOST_BYTES:
        raise ConfigError(
            f"the state '{state.input_name}' of '{config.name}' starts with {size} bytes, and each sequence has its "
            f"own: make its dims {list(state.initial.dims)} smaller"
        )
    if not state.initial.data_file:
        array = zeros(state.datatype, shape)
    else:
        array = _from_file(directory / INITIAL_STATE_FOLDER / state.initial.data_file, state, shape, count)
    array.flags.writeable = False
    return array


def _from_file(path: Path, state: State, shape: tuple[int, ...], count: int) -> NDArray[Any]:
    try:
        raw = read_file(path)
    except OSError as error:
        raise ConfigError(
            f"failed to open text file for read {path}: {error.strerror} (initial_state of '{state.input_name}'); "
            "put the file there or write zero_data: true"
        ) from None
    expected = count * state.datatype.size
    if state.datatype is not BYTES and len(raw) < expected:
        raise ConfigError(
            f"initial_state setting expects {expected} bytes, but the data provided from {state.initial.data_file} "
            f"only has {len(raw)} bytes: the state '{state.input_name}' starts with the shape {list(shape)} of "
            f"{state.datatype.name}"
        )
    try:
        # Triton, too, takes no notice of what follows.
        return unpack(
            state.input_name, state.datatype, shape, count, raw if state.datatype is BYTES else raw[:expected]
        )
    except ServeError as error:
        raise ConfigError(f"initial_state file {path}: {error.message}") from None
