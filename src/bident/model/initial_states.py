"""What the implicit states of a model are when a sequence starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bident.errors import ConfigError
from bident.model.config import ModelConfig
from bident.model.sequence_batching import INITIAL_STATE_FOLDER, State
from bident.model.tensor_files import MOST_BYTES, read_tensor
from bident.wire.infer import element_count, is_addressable, zeros


def load(directory: Path, config: ModelConfig) -> dict[str, NDArray[Any]]:
    """The first value of each state, by its input's name, read-only; one row where the model batches.

    Raises ConfigError when a state is too large, or its file is missing or too short.
    """
    batching = config.sequence_batching
    states = batching.states if batching is not None else ()
    return {state.input_name: _first(directory, config, state) for state in states}


def _first(directory: Path, config: ModelConfig, state: State) -> NDArray[Any]:
    shape = ((1,) if config.max_batch_size else ()) + state.initial.dims
    count = element_count(shape)
    size = count * (state.datatype.size or 8)
    if not is_addressable(shape) or size > MOST_BYTES:
        raise ConfigError(
            f"the state '{state.input_name}' of '{config.name}' starts with {size} bytes, and each sequence has its "
            f"own: make its dims {list(state.initial.dims)} smaller"
        )
    if not state.initial.data_file:
        array = zeros(state.datatype, shape)
    else:
        path = directory / INITIAL_STATE_FOLDER / state.initial.data_file
        array = read_tensor(path, "initial_state", state.input_name, state.datatype, shape)
    array.flags.writeable = False
    return array
