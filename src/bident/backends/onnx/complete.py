"""Auto-complete: fills in what a declaration leaves out and the model file says, by Triton's rules."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from bident.backends.onnx.check import require_tensor, scheduler_inputs, state_outputs
from bident.backends.onnx.signature import DeclaredTensor, Signature
from bident.errors import ConfigError
from bident.model.config import ModelConfig
from bident.model.proto import ModelConfigProto, pb

_LOG = logging.getLogger("bident.onnx")


def needs_completion(config: ModelConfig) -> bool:
    """False when both sides are declared: then the model file is not even opened."""
    return not ((config.inputs or config.proto.batch_input) and config.outputs)


def complete(config: ModelConfig, signature: Signature, default_max_batch_size: int) -> ModelConfig:
    """``config`` with its missing side, batch size and scheduler filled in.

    Batching is possible only if the first dimension of every input and output is free.
    Raises ConfigError when the config asks for batching that the model cannot do, or when a tensor
    to be filled in is none (a sequence, a map) or has a datatype that the protocol lacks.
    """
    proto = config.to_proto()
    _complete_batching(config, proto, signature, default_max_batch_size)
    if not (proto.input or proto.batch_input):
        fed = set(scheduler_inputs(config))
        missing = [tensor for name, tensor in signature.inputs.items() if name not in fed]
        _complete_tensors(config, "input", proto.input, proto.max_batch_size > 0, missing)
    if not proto.output:
        kept = set(state_outputs(config))
        missing = [tensor for name, tensor in signature.outputs.items() if name not in kept]
        _complete_tensors(config, "output", proto.output, proto.max_batch_size > 0, missing)
    return ModelConfig.from_proto(proto)


def _complete_batching(
    config: ModelConfig, proto: ModelConfigProto, signature: Signature, default_max_batch_size: int
) -> None:
    if not signature.batchable:
        if config.max_batch_size > 0:
            fixed = [
                str(tensor)
                for tensor in (*signature.inputs.values(), *signature.outputs.values())
                if tensor.is_tensor and not tensor.batchable
            ]
            raise ConfigError(
                f"autofill failed for model '{config.name}': model does not support batching while non-zero "
                f"max_batch_size is specified: the first dimension is fixed in {', '.join(fixed)}; export the model "
                f"with a dynamic batch axis, or set max_batch_size: 0"
            )
        return
    if config.max_batch_size == 0:
        proto.max_batch_size = max(0, default_max_batch_size)
        _LOG.info(
            "autofilled max_batch_size to %d for model '%s' since batching is supported but no max_batch_size is "
            "specified in model configuration; specify a larger one for larger batches",
            proto.max_batch_size,
            config.name,
        )
    if proto.max_batch_size > 1 and proto.WhichOneof("scheduling_choice") is None:
        proto.dynamic_batching.SetInParent()


def _complete_tensors(
    config: ModelConfig, role: str, tensors: Any, batching: bool, missing: Iterable[DeclaredTensor]
) -> None:
    """Append one declaration per tensor in ``missing`` to the repeated message ``tensors``."""
    for declared in missing:
        if declared.kind == "ONNX_TYPE_OPTIONAL" and role == "input":
            continue  # The model runs without it, and requests cannot carry it.
        datatype = require_tensor(config, role, declared)
        tensor = tensors.add(name=declared.name, data_type=pb.DataType.Value(datatype.config_name))
        dims = declared.dims[1:] if batching else declared.dims
        tensor.dims.extend(dims or (1,))
        if not dims and batching:
            tensor.reshape.SetInParent()
