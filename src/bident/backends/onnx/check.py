"""Compares a model's declaration with its file, so that a mistake shows at load and not at the first request."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from bident.backends.onnx.signature import DeclaredTensor, Signature, spell
from bident.errors import ConfigError
from bident.model.config import ModelConfig, TensorSpec
from bident.wire.datatypes import DataType


def check(config: ModelConfig, signature: Signature) -> list[str]:
    """Raise ConfigError where ``config`` does not fit the model file; return what deserves a warning.

    Each error starts with Triton's words and ends with what to write instead.
    """
    _check_input_names(config, signature)
    _check_output_names(config, signature)
    notes: list[str] = []
    for spec in config.inputs.values():
        declared = signature.feed(spec.name)
        if declared is not None:
            _check_input(config, spec, declared)
    for spec in config.outputs.values():
        declared = signature.outputs[spec.name]
        notes += _check_output(config, spec, declared)
    return notes


def require_tensor(config: ModelConfig, role: str, declared: DeclaredTensor) -> DataType:
    """The datatype of ``declared``; ConfigError if it is no tensor or of a type that the protocol lacks."""
    if not declared.is_tensor:
        raise ConfigError(
            f"Unsupported ONNX Type '{declared.kind}' for {role} '{declared.name}', expected 'ONNX_TYPE_TENSOR': model "
            f"'{config.name}' has {declared.onnx_type} there and requests carry tensors only; export the model with a "
            f"tensor instead (scikit-learn: options={{'zipmap': False}})"
            + (", or list only its other outputs in config.pbtxt" if role == "output" else "")
        )
    if declared.datatype is None:
        raise ConfigError(
            f"unsupported datatype {declared.element} for {role} '{declared.name}' for model '{config.name}': the v2 "
            f"protocol has no such type; put a Cast to FP32 (or another v2 datatype) into the model"
        )
    return declared.datatype


def scheduler_inputs(config: ModelConfig) -> list[str]:
    """Inputs of the model file that the scheduler feeds: sequence controls, states, batch inputs."""
    batching = config.proto.sequence_batching
    return [
        *(control.name for control in batching.control_input),
        *(state.input_name for state in batching.state),
        *(name for item in config.proto.batch_input for name in item.target_name),
    ]


def state_outputs(config: ModelConfig) -> list[str]:
    """Outputs of the model file that the sequence scheduler keeps."""
    return [state.output_name for state in config.proto.sequence_batching.state]


def _check_input_names(config: ModelConfig, signature: Signature) -> None:
    fed = dict.fromkeys([*config.inputs, *scheduler_inputs(config)])
    unknown = [name for name in fed if signature.feed(name) is None]
    required = [name for name, tensor in signature.inputs.items() if tensor.kind != "ONNX_TYPE_OPTIONAL"]
    missing = [name for name in required if name not in fed]
    unfed = [name for name, spec in config.inputs.items() if spec.optional and name in signature.inputs]
    if not (unknown or missing or unfed):
        return
    optional = [spec for spec in config.inputs.values() if spec.optional]
    expected, provided = len(fed) - len(optional), len(signature.inputs)
    if expected != provided or not unknown:
        head = (
            f"unable to load model '{config.name}', configuration expects {expected} inputs, model provides {provided}"
        )
    else:
        head = f"unexpected inference input '{unknown[0]}', allowed inputs are: {', '.join(signature.inputs)}"
    details = [f"'{name}' is not in the model{_near(name, missing, signature.inputs)}" for name in unknown]
    details += [f"'{name}' is missing from config.pbtxt" for name in missing]
    details += [f"'{name}' is marked optional, but the model has no default value for it" for name in unfed]
    raise ConfigError(f"{head}: {'; '.join(details)}. {_contents('inputs', signature.inputs.values())}")


def _check_output_names(config: ModelConfig, signature: Signature) -> None:
    for name in (*config.outputs, *state_outputs(config)):
        if name not in signature.outputs:
            unclaimed = [other for other in signature.outputs if other not in config.outputs]
            raise ConfigError(
                f"unexpected inference output '{name}', allowed outputs are: {', '.join(signature.outputs)}: model "
                f"'{config.name}' has no such output{_near(name, unclaimed, signature.outputs)}. "
                f"{_contents('outputs', signature.outputs.values())}"
            )


def _near(name: str, unclaimed: list[str], every: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``: a name that looks alike, else the only one that nobody claimed."""
    near = difflib.get_close_matches(name, unclaimed, 1) or difflib.get_close_matches(name, list(every), 1)
    if not near and len(unclaimed) == 1:
        near = unclaimed
    return f" (did you mean '{near[0]}'?)" if near else ""


def _contents(role: str, tensors: Iterable[DeclaredTensor]) -> str:
    return f"The model's {role}: {', '.join(str(tensor) for tensor in tensors) or 'none'}"


def _check_datatype(config: ModelConfig, role: str, spec: TensorSpec, declared: DeclaredTensor) -> None:
    datatype = require_tensor(config, role, declared)
    if datatype is not spec.datatype:
        right = datatype.config_name
        raise ConfigError(
            f"unable to load model '{config.name}', configuration expects datatype {spec.datatype.config_name} for "
            f"{role} '{spec.name}', model provides {right}: write data_type: {right}"
        )


def _check_input(config: ModelConfig, spec: TensorSpec, declared: DeclaredTensor) -> None:
    _check_datatype(config, "input", spec, declared)
    if spec.optional and config.max_batch_size > 0:
        raise ConfigError(
            f"unable to load model '{config.name}', optional input '{spec.name}' is not supported for models that "
            f"support batching: set max_batch_size: 0, or leave the input out of config.pbtxt (its default is used)"
        )
    if spec.allow_ragged_batch:
        if declared.dims != (-1,):
            raise ConfigError(
                f"unable to load model '{config.name}', configuration expects model provides input with shape [-1] for "
                f"ragged input '{spec.name}', model provides {spell(declared.dims)}: remove allow_ragged_batch"
            )
    elif not declared.dims and config.max_batch_size == 0:
        if any(dim != 1 for dim in spec.model_dims):
            raise ConfigError(
                f"unable to load model '{config.name}', scalar tensor '{spec.name}', should only provide 1 in the "
                f"model configuration when the model doesn't support batching. Model configuration provided: "
                f"{spell(spec.model_dims)}; write dims: [ 1 ]"
            )
    elif not _fits(config, spec, declared, free_for_fixed=False):
        raise _shape_error(config, spec, declared)


def _check_output(config: ModelConfig, spec: TensorSpec, declared: DeclaredTensor) -> list[str]:
    _check_datatype(config, "output", spec, declared)
    if not declared.dims:  # A scalar or a rank left open: the instance looks at what really comes out.
        return []
    if config.ragged is not None and spec.name in config.ragged.scattered:
        return []  # Its elements are dealt out whatever their shape.
    if not _fits(config, spec, declared, free_for_fixed=True):
        raise _shape_error(config, spec, declared)
    if not _fits(config, spec, declared, free_for_fixed=False):
        exact = spell(_without_batch(config, declared))
        return [
            f"model '{config.name}', output '{spec.name}': the model declares {exact} where the configuration says "
            f"{spell(spec.model_dims)}. It works here, but NVIDIA Triton refuses -1 for a fixed dimension"
        ]
    return []


def _full_dims(config: ModelConfig, spec: TensorSpec) -> tuple[int, ...]:
    return (-1, *spec.model_dims) if config.max_batch_size > 0 else spec.model_dims


def _without_batch(config: ModelConfig, declared: DeclaredTensor) -> tuple[int, ...]:
    return declared.dims[1:] if config.max_batch_size > 0 else declared.dims


def _fits(config: ModelConfig, spec: TensorSpec, declared: DeclaredTensor, free_for_fixed: bool) -> bool:
    """Whether the declared dimensions fit the model's; a free model dimension takes anything."""
    wanted, given = declared.dims, _full_dims(config, spec)
    if len(wanted) != len(given):
        return False
    if config.max_batch_size > 0:
        # A model fixed at batch 1 can serve max_batch_size 1: no batch it gets is ever another size.
        if wanted[0] != -1 and not wanted[0] == config.max_batch_size == 1:
            return False
        wanted, given = wanted[1:], given[1:]
    return all(
        model in (-1, ours) or (free_for_fixed and ours == -1) for model, ours in zip(wanted, given, strict=True)
    )


def _shape_error(config: ModelConfig, spec: TensorSpec, declared: DeclaredTensor) -> ConfigError:
    shape, given = declared.dims, _full_dims(config, spec)
    where = f"model '{config.name}', tensor '{spec.name}': "
    if config.max_batch_size > 0 and not declared.batchable:
        return ConfigError(
            f"{where}for the model to support batching the shape should have at least 1 dimension and the first "
            f"dimension must be -1; but shape expected by the model is {spell(shape)}: {_fixed_batch(config, shape)}"
        )
    text = (
        f"{where}the model expects {len(shape)} dimensions (shape {spell(shape)}) but the model configuration "
        f"specifies {len(given)} dimensions ("
    )
    if config.max_batch_size > 0:
        text += (
            "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making "
            "complete "
        )
    return ConfigError(f"{text}shape {spell(given)}): {_cure(config, spec, declared)}")


def _fixed_batch(config: ModelConfig, shape: tuple[int, ...]) -> str:
    if not shape:
        return "the tensor is a scalar, so set max_batch_size: 0 and dims: [ 1 ]"
    return (
        f"max_batch_size is {config.max_batch_size} and the model file fixes its own batch at {shape[0]}; export it "
        f"again with a dynamic batch axis (dynamic_axes / dynamic_shapes), or set max_batch_size: 0 and "
        f"dims: {spell(shape)}"
    )


def _cure(config: ModelConfig, spec: TensorSpec, declared: DeclaredTensor) -> str:
    """What to write in config.pbtxt so that this tensor fits."""
    right, ours, batching = _without_batch(config, declared), spec.model_dims, config.max_batch_size > 0
    if batching and not right:
        return (
            "the model gives one scalar per row, so write dims: [ 1 ] with reshape { shape: [ ] }"
            if spec.reshape is None
            else "the model gives one scalar per row, so write reshape { shape: [ ] }"
        )
    where = "dims" if spec.reshape is None else "reshape"
    if batching and ours[:1] == (-1,) and len(ours) == len(right) + 1:
        return (
            f"{where} must not repeat the batch dimension, which max_batch_size > 0 adds; write {spell(right)} there, "
            f"or set max_batch_size: 0"
        )
    if not batching and declared.batchable and len(ours) == len(right) - 1:
        return (
            f"max_batch_size is 0, so {where} must hold the batch dimension too: write {spell(right)} there, or set "
            f"max_batch_size to the largest batch"
        )
    return f"write {spell(right)} in {where}"
