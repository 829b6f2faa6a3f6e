"""Checks of an ensemble against the configs of its members: what flows from one to the next must fit.

The checks and their words are Triton's (``ensemble_utils.cc``). A size that varies (-1) fits any: requests
are then checked by the member that gets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bident.model.config import EnsembleStep, ModelConfig, TensorSpec
from bident.model.hints import did_you_mean
from bident.model.subject import Subject
from bident.wire.datatypes import DataType


class _Inferred(NamedTuple):
    """What is known of a tensor of the ensemble, and from which model."""

    model: str
    datatype: DataType
    dims: tuple[int, ...]
    full: tuple[int, ...]
    """``dims`` with the batch dimension, for a model that batches."""


def check_members(config: ModelConfig, members: Sequence[ModelConfig], source: str) -> bool:
    """Check ``config``, an ensemble whose own checks have passed, against the ``members`` of its steps.

    Returns whether it is decoupled, as it is when a member is. Raises ConfigError naming step, model
    and tensor; ``source`` is the file that the ensemble's config came from.
    """
    subject = Subject(config.proto, source)
    for index, member in enumerate(members):
        _check_batch_size(subject, config, index, member)
    known = {spec.name: _own(config, spec) for spec in (*config.inputs.values(), *config.outputs.values())}
    for index, (step, member) in enumerate(zip(config.steps, members, strict=True)):
        _check_inputs(subject, index, step, member, known)
        _check_outputs(subject, index, step, member, known)
    _check_sources(subject, config, members)
    return any(member.decoupled for member in members)


def _check_batch_size(subject: Subject, config: ModelConfig, index: int, member: ModelConfig) -> None:
    limit, allowed = member.max_batch_size, config.max_batch_size
    if 0 < limit < allowed:
        subject.refuse(
            f"ensemble {config.name} allows maximum batch size {allowed}, but it contains model {member.name} which "
            f"only allows maximum batch size to be {limit}",
            f"raise max_batch_size of '{member.name}' (step {index}), or write max_batch_size: {limit} for the "
            "ensemble",
        )


def _own(config: ModelConfig, spec: TensorSpec) -> _Inferred:
    """The ensemble's own declaration: inside it, tensors have the shapes that ``reshape`` gives them."""
    return _inferred(config, spec.datatype, spec.model_dims)


def _inferred(config: ModelConfig, datatype: DataType, dims: tuple[int, ...]) -> _Inferred:
    return _Inferred(config.name, datatype, dims, (-1, *dims) if config.max_batch_size > 0 else dims)


def _check_inputs(
    subject: Subject, index: int, step: EnsembleStep, member: ModelConfig, known: dict[str, _Inferred]
) -> None:
    where = f"in ensemble {subject.name}"
    for name, tensor in sorted(step.inputs.items()):
        if name not in member.inputs:
            subject.refuse(
                f"{where}, ensemble tensor {tensor} is mapping to non-existing input {name} in model {member.name}",
                f"step {index}: {did_you_mean(name, member.inputs) or 'the model has no inputs'}",
            )
    for name, spec in member.inputs.items():
        if name in step.inputs:
            _check_consistent(subject, step.inputs[name], _inferred(member, spec.datatype, spec.dims), known)
        elif not spec.optional:
            subject.refuse(
                f"{where}, input {name} in model {member.name} is not mapped to any ensemble tensors",
                f'add input_map {{ key: "{name}" value: "<tensor>" }} to step {index}',
            )


def _check_outputs(
    subject: Subject, index: int, step: EnsembleStep, member: ModelConfig, known: dict[str, _Inferred]
) -> None:
    for name, tensor in sorted(step.outputs.items()):
        if name not in member.outputs:
            subject.refuse(
                f"in ensemble {subject.name}, ensemble tensor {tensor} is mapped from non-existing output {name} in "
                f"model {member.name}",
                f"step {index}: {did_you_mean(name, member.outputs) or 'the model has no outputs'}",
            )
    for name, spec in member.outputs.items():
        if name in step.outputs:
            _check_consistent(subject, step.outputs[name], _inferred(member, spec.datatype, spec.dims), known)


def _check_consistent(subject: Subject, tensor: str, new: _Inferred, known: dict[str, _Inferred]) -> None:
    """Compare what a member says of ``tensor`` with what is known of it, from whoever named it first."""
    old = known.setdefault(tensor, new)
    label = f"in ensemble {subject.name}, ensemble tensor {tensor}: inconsistent"
    if old.datatype is not new.datatype:
        subject.refuse(
            f"{label} data type: {old.datatype.config_name} is inferred from model {old.model} while "
            f"{new.datatype.config_name} is inferred from model {new.model}",
            f"{_places(subject, tensor)}; convert it in a step between, or correct the map",
        )
    # A model without batching may have the batch dimension among its dims, so either way of looking will do.
    if not _compatible(old.dims, new.dims) and not _compatible(old.full, new.full):
        subject.refuse(
            f"{label} shape: {_shown(old.full)} is inferred from model {old.model} while {_shown(new.full)} is "
            f"inferred from model {new.model}",
            f"{_places(subject, tensor)}; correct the map or the dims, or reshape it in a step between",
        )


def _places(subject: Subject, tensor: str) -> str:
    """Where ``tensor`` is written and read."""
    steps = subject.proto.ensemble_scheduling.step
    places = [
        f"{side} '{name}' of '{step.model_name}' in step {index}"
        for index, step in enumerate(steps)
        for side, mapped in (("output", step.output_map), ("input", step.input_map))
        for name, target in sorted(mapped.items())
        if target == tensor
    ]
    return f"'{tensor}' is {' and '.join(places)}"


def _compatible(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))


def _shown(dims: tuple[int, ...]) -> str:
    return "[" + ",".join(str(dim) for dim in dims) + "]"


def _check_sources(subject: Subject, config: ModelConfig, members: Sequence[ModelConfig]) -> None:
    """Refuse to join what does not come equally often: answers of different streams, or of one and the request."""
    source = dict.fromkeys(config.inputs, "the request")
    waiting = list(enumerate(zip(config.steps, members, strict=True)))
    while waiting:
        later = []
        for index, (step, member) in waiting:
            if not source.keys() >= set(step.inputs.values()):
                later.append((index, (step, member)))
                continue
            _check_one_source(subject, f"step {index}", member.name, step.inputs.values(), source)
            own = f"step {index} ('{member.name}')" if member.decoupled else source[next(iter(step.inputs.values()))]
            source.update(dict.fromkeys(step.outputs.values(), own))
        waiting = later
    _check_one_source(subject, "the ensemble's answer", subject.name, config.outputs, source)


def _check_one_source(
    subject: Subject, reader: str, model: str, tensors: Iterable[str], source: dict[str, str]
) -> None:
    by_source = {source[tensor]: tensor for tensor in sorted(tensors)}
    if len(by_source) > 1:
        found = " and ".join(f"'{tensor}' from {origin}" for origin, tensor in by_source.items())
        subject.refuse(
            f"in ensemble {subject.name}, step of model '{model}' receives inputs originated from different decoupled "
            "models",
            f"{reader} takes {found}, of which there are not equally many: take all from one",
        )
