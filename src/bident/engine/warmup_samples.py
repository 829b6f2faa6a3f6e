"""Reads ``model_warmup``: declared, random or recorded tensors, as requests that a model can answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.engine.admission import Admission
from bident.engine.warmup import Sample
from bident.errors import ConfigError, ServeError
from bident.model.config import ModelConfig
from bident.model.proto import pb
from bident.model.tensor_files import MOST_BYTES, read_tensor
from bident.wire.datatypes import BOOL, BY_CONFIG_NAME, BYTES, DataType
from bident.wire.infer import InferInput, InferRequest, element_count, is_addressable, zeros

FOLDER = "warmup"
"""Where in a model's folder the files lie that samples name."""

_RANDOM_BELOW = 100
"""Random integers are small: they fit every datatype, and what they stand for, often places in a table, is there."""


def read(directory: Path, config: ModelConfig) -> list[Sample]:
    """The warmup samples of ``config``, whose model lies in ``directory``. Those of batch size 0 are left out.

    Raises ConfigError, in Triton's words, when a file cannot be read, or the model would refuse the request.
    """
    admission = Admission(config)
    return [_sample(directory, config, admission, told) for told in config.proto.model_warmup if told.batch_size]


def _sample(directory: Path, config: ModelConfig, admission: Admission, told: Any) -> Sample:
    tensors = {
        name: _tensor(directory / FOLDER, name, told.inputs[name], lead=(1,) if config.max_batch_size else ())
        for name in sorted(told.inputs)
    }
    inputs = {name: tensor for name, tensor in tensors.items() if name not in _extra_names(config)}
    request = InferRequest(config.name, "", "", inputs, 0)
    try:
        admission.admit(request)
    except ServeError as error:
        raise ConfigError(f"{error.message} (warmup sample '{told.name}'); correct model_warmup") from None
    size = told.batch_size * sum(_bytes(tensor.datatype, tensor.count) for tensor in tensors.values())
    if size > MOST_BYTES:  # the event loop may have to join the requests
        raise ConfigError(
            f"warmup sample '{told.name}' takes {size} bytes, of at most {MOST_BYTES}: lower its batch_size, "
            f"{told.batch_size}, or the dims of its inputs"
        )
    extra = {name: tensor for name, tensor in tensors.items() if name not in inputs}
    return Sample(told.name, told.batch_size, max(1, told.count), inputs, extra)


def _bytes(datatype: DataType, count: int) -> int:
    """How many bytes so many elements take in memory; of strings, without their letters."""
    return count * (datatype.size or 8)


def _extra_names(config: ModelConfig) -> set[str]:
    """What the server tells a sequence model beside what clients send."""
    batching = config.proto.sequence_batching
    controls = {tensor.name for tensor in batching.control_input}
    return (controls | {state.input_name for state in batching.state}) - config.inputs.keys()


def _tensor(folder: Path, name: str, told: Any, lead: tuple[int, ...]) -> InferInput:
    datatype = BY_CONFIG_NAME[pb.DataType.Name(told.data_type)]
    shape = lead + tuple(told.dims)
    count = element_count(shape)
    size = _bytes(datatype, count)
    if not is_addressable(shape) or size > MOST_BYTES:
        raise ConfigError(
            f"the warmup data of input '{name}' takes {size} bytes: make its dims {list(told.dims)} smaller"
        )
    if told.WhichOneof("input_data_type") == "input_data_file":
        array = read_tensor(folder / told.input_data_file, "warmup", name, datatype, shape)
    elif told.WhichOneof("input_data_type") == "random_data":
        array = _random(datatype, shape)
    else:
        array = zeros(datatype, shape)
    return InferInput(name, datatype, shape, count, array)


def _random(datatype: DataType, shape: tuple[int, ...]) -> NDArray[Any]:
    if datatype is BYTES:  # empty strings, as with Triton
        return zeros(datatype, shape)
    generator = np.random.default_rng()
    if datatype is BOOL or datatype.numpy.kind in "iu":
        return generator.integers(0, 2 if datatype is BOOL else _RANDOM_BELOW, shape).astype(datatype.numpy)
    return generator.random(shape, np.float32).astype(datatype.numpy)
