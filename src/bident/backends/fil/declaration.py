"""The tensors of a fil model: what the config declares, held against what the trees need and give."""

from __future__ import annotations

import difflib
import logging
import math
from dataclasses import dataclass
from typing import Any

from bident.backends.fil.answers import Answer, Kind
from bident.backends.fil.forest import Forest
from bident.backends.fil.loading import TreeModel
from bident.backends.fil.parameters import Parameters
from bident.errors import ConfigError
from bident.model.config import ModelConfig, TensorSpec
from bident.model.proto import pb
from bident.wire.datatypes import BYTES, DATATYPES

INPUT, OUTPUT, CONTRIBUTIONS = "input__0", "output__0", "treeshap_output"
MAX_BATCH_SIZE = 8192
"""For configs that say nothing: a row costs microseconds, so the larger the batch the better."""

_LOG = logging.getLogger("bident.fil")
_FLOATS = frozenset(DATATYPES[name] for name in ("FP16", "BF16", "FP32", "FP64"))


@dataclass(frozen=True)
class Tensors:
    """The declared tensors in their roles; ``contributions`` is ``treeshap_output``, where asked for."""

    rows: TensorSpec
    output: TensorSpec
    contributions: TensorSpec | None
    answer: Answer


def complete_config(
    config: ModelConfig, model: TreeModel, parameters: Parameters, max_batch_size: int | None
) -> ModelConfig:
    """Declare what ``config`` leaves out. ``max_batch_size`` is the server's wish, None for ours."""
    proto = config.to_proto()
    is_absent = not proto.input and not proto.output
    if is_absent and not proto.max_batch_size:
        proto.max_batch_size = MAX_BATCH_SIZE if max_batch_size is None else max_batch_size
        _LOG.info("model '%s': max_batch_size %d is assumed", config.name, proto.max_batch_size)
    if is_absent and proto.max_batch_size > 1 and proto.WhichOneof("scheduling_choice") is None:
        proto.dynamic_batching.SetInParent()
    if not proto.input:
        _declare(proto, proto.input, INPUT, model.forest.features)
    if not proto.output:
        _declare(proto, proto.output, OUTPUT, _widths(parameters, model.forest)[0])
    return ModelConfig.from_proto(proto)


def _declare(proto: Any, tensors: Any, name: str, width: int) -> None:
    dims = [width] if proto.max_batch_size else [-1, width]
    tensors.add(name=name, data_type=pb.TYPE_FP32, dims=dims)


def declared_tensors(config: ModelConfig, model: TreeModel, parameters: Parameters) -> Tensors:
    """Find the tensors' roles. Raises ConfigError that says what fil needs where that is not declared."""
    forest = model.forest
    rows = _only_input(config, forest)
    _check_rows(config, rows, forest)
    output, contributions = _outputs(config)
    answer = _answer(config, rows, output, parameters, forest)
    if contributions is not None:
        _check_contributions(config, contributions, forest)
    return Tensors(rows, output, contributions, answer)


def _only_input(config: ModelConfig, forest: Forest) -> TensorSpec:
    if len(config.inputs) != 1:
        raise ConfigError(
            f"fil needs exactly one input ({INPUT} TYPE_FP32 [ {forest.features} ]), "
            f"model '{config.name}' declares {_names(config.inputs)}"
        )
    (rows,) = config.inputs.values()
    if rows.datatype is BYTES:
        raise ConfigError(
            f"fil needs numbers: input '{rows.name}' of model '{config.name}' is TYPE_STRING, set TYPE_FP32"
        )
    return rows


def _check_rows(config: ModelConfig, rows: TensorSpec, forest: Forest) -> None:
    dims = rows.model_dims if config.max_batch_size else rows.model_dims[-1:]
    fixed = math.prod(dim for dim in dims if dim >= 0)
    unknown = sum(dim < 0 for dim in dims)
    fits = fixed == forest.features if not unknown else unknown == 1 and fixed and forest.features % fixed == 0
    if not fits or not dims:
        raise ConfigError(
            f"fil: input '{rows.name}' of model '{config.name}' has dims {list(rows.model_dims)}, but a row of the "
            f"model has {forest.features} features: set dims: [ {forest.features} ]"
        )


def _outputs(config: ModelConfig) -> tuple[TensorSpec, TensorSpec | None]:
    answers = [spec for name, spec in config.outputs.items() if name != CONTRIBUTIONS]
    if len(answers) != 1:
        near = [name for name in config.outputs if difflib.get_close_matches(name, [CONTRIBUTIONS], 1)]
        hint = f"; did you mean '{CONTRIBUTIONS}' by '{near[0]}'?" if near and CONTRIBUTIONS not in near else ""
        raise ConfigError(
            f"fil gives one output ({OUTPUT} TYPE_FP32) and, if asked, {CONTRIBUTIONS}; "
            f"model '{config.name}' declares {_names(config.outputs)}{hint}"
        )
    return answers[0], config.outputs.get(CONTRIBUTIONS)


def _widths(parameters: Parameters, forest: Forest) -> tuple[int, ...]:
    """The widths that ``output__0`` may have, the natural one first."""
    if not (parameters.is_classifier and parameters.predict_proba):
        return (1,)
    return (forest.classes,) if forest.classes > 1 else (2, 1)


def _answer(
    config: ModelConfig, rows: TensorSpec, output: TensorSpec, parameters: Parameters, forest: Forest
) -> Answer:
    allowed = _widths(parameters, forest)
    width = _declared_width(config, rows, output, allowed[0])
    if width not in allowed:
        dims = " or ".join(f"[ {allowed_width} ]" for allowed_width in sorted(allowed))
        cure = _cure(width, parameters, forest)
        raise ConfigError(
            f"fil: output '{output.name}' of model '{config.name}' has dims {list(output.model_dims)}, but the model "
            f"gives {dims} with predict_proba={str(parameters.predict_proba).lower()}: set dims: {dims}{cure}"
        )
    kind = Kind.SCORES
    if parameters.is_classifier and not parameters.predict_proba:
        kind = Kind.LARGEST if forest.classes > 1 else Kind.ABOVE_THRESHOLD
    elif forest.classes == 1 and width == 2:
        kind = Kind.BOTH_CLASSES
    is_class = kind in (Kind.LARGEST, Kind.ABOVE_THRESHOLD)
    if output.datatype is BYTES or (not is_class and output.datatype not in _FLOATS):
        raise ConfigError(
            f"fil: output '{output.name}' of model '{config.name}' is {output.datatype.config_name}, "
            "which cannot hold scores: set data_type: TYPE_FP32"
        )
    return Answer(kind, width, parameters.threshold)


def _cure(width: int, parameters: Parameters, forest: Forest) -> str:
    if parameters.is_classifier and not parameters.predict_proba and width == max(2, forest.classes):
        return ", or parameter predict_proba to 'true' for probabilities"
    return ""


def _declared_width(config: ModelConfig, rows: TensorSpec, output: TensorSpec, natural: int) -> int:
    """How many numbers per row the declared dims leave room for; ``natural`` where they leave it open."""
    dims = output.model_dims
    if not config.max_batch_size:
        if len(dims) not in (len(rows.model_dims), len(rows.model_dims) - 1):
            raise ConfigError(
                f"fil: output '{output.name}' of model '{config.name}' has {len(dims)} dims for input dims "
                f"{list(rows.model_dims)}: declare [ -1, {natural} ] for [ -1, {rows.model_dims[-1]} ], "
                "or set max_batch_size and leave the batch dimension out"
            )
        dims = dims[-1:] if len(dims) == len(rows.model_dims) else ()
    return natural if any(dim < 0 for dim in dims) else math.prod(dims)


def _check_contributions(config: ModelConfig, spec: TensorSpec, forest: Forest) -> None:
    needed = forest.classes * (forest.features + 1)
    problem = ""
    if not forest.plain:
        problem = "is computed for numerical features only, and the model has categorical ones"
    elif forest.cover is None:
        problem = "cannot be computed: Model does not have node statistics."
    elif not config.max_batch_size:
        problem = "needs max_batch_size > 0"
    elif spec.datatype not in _FLOATS:
        problem = f"is {spec.datatype.config_name}: set data_type: TYPE_FP32"
    elif math.prod(spec.model_dims) != needed:
        problem = f"has dims {list(spec.model_dims)}: set dims: [ {needed} ] (classes x (features + 1))"
    if problem:
        raise ConfigError(f"fil: output '{CONTRIBUTIONS}' of model '{config.name}' {problem}")


def _names(tensors: dict[str, TensorSpec]) -> str:
    return ", ".join(f"'{name}'" for name in tensors) or "none"
