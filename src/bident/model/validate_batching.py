"""Checks of ``dynamic_batching`` and ``sequence_batching``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bident.model.proto import pb
from bident.model.subject import Subject
from bident.model.validate_states import check_states

_PAIRS = ("int32_false_true", "fp32_false_true", "bool_false_true")
_ANY_PAIR = "either 'int32_false_true', 'fp32_false_true' or 'bool_false_true'"
_MAX_PRIORITY_LEVELS = 1000
_CORRELATION_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")


def check_dynamic(subject: Subject) -> None:
    """Check preferred sizes, priorities, and what ``preserve_ordering`` rules out."""
    batching = subject.proto.dynamic_batching
    _check_sizes(subject, "dynamic batching preferred size", batching.preferred_batch_size)
    if batching.priority_levels:
        _check_priorities(subject, batching)
    if batching.preserve_ordering:
        _check_ordering(subject, batching)


def check_sequence(subject: Subject) -> None:
    """Check control tensors, states, and the limits of the chosen strategy."""
    batching = subject.proto.sequence_batching
    _check_controls(subject, batching)
    if batching.HasField("oldest"):
        _check_sizes(subject, "sequence batching preferred batch size", batching.oldest.preferred_batch_size)
    if batching.HasField("direct") and not 0.0 <= batching.direct.minimum_slot_utilization <= 1.0:
        subject.refuse(
            f"sequence batching minimum slot utilization must be in range (0.0, 1.0] for {subject.name}",
            f"change minimum_slot_utilization, now {batching.direct.minimum_slot_utilization}",
        )
    check_states(subject, batching)


def _check_sizes(subject: Subject, label: str, sizes: Iterable[int]) -> None:
    for size in sizes:
        if size <= 0:
            subject.refuse(f"{label} must be positive for {subject.name}", f"remove {size} from preferred_batch_size")
        if size > subject.proto.max_batch_size:
            subject.refuse(
                f"{label} must be <= max batch size for {subject.name}",
                f"preferred_batch_size has {size}, max_batch_size is {subject.proto.max_batch_size}: change one",
            )


def _check_priorities(subject: Subject, batching: Any) -> None:
    levels = batching.priority_levels
    if levels > _MAX_PRIORITY_LEVELS:
        subject.refuse(
            f"priority levels must be <= {_MAX_PRIORITY_LEVELS} for {subject.name}",
            f"lower priority_levels, now {levels}: each level has a queue of its own",
        )
    if not 1 <= batching.default_priority_level <= levels:
        subject.refuse(
            f"default priority level must be in range [1, {levels}] for {subject.name}",
            f"set default_priority_level, now {batching.default_priority_level}",
        )
    for level in sorted(batching.priority_queue_policy):
        if not 1 <= level <= levels:
            subject.refuse(
                f"priority queue policy must have priority level in range [1, {levels}] for {subject.name}",
                f"change key {level} of priority_queue_policy, or priority_levels",
            )


def _check_ordering(subject: Subject, batching: Any) -> None:
    if batching.priority_levels > 1:
        subject.refuse(
            f"Only one priority level is allowed when 'preserve_ordering' is true for {subject.name}",
            f"remove preserve_ordering or priority_levels: {batching.priority_levels}",
        )
    for policy in (batching.default_queue_policy, *batching.priority_queue_policy.values()):
        if policy.default_timeout_microseconds and policy.timeout_action == pb.ModelQueuePolicy.DELAY:
            subject.refuse(
                "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for "
                f"{subject.name}",
                "write timeout_action: REJECT or remove preserve_ordering",
            )


def _check_controls(subject: Subject, batching: Any) -> None:
    tensors: set[str] = set()
    kinds: set[int] = set()
    for tensor in batching.control_input:
        if not tensor.name:
            subject.refuse(
                f"sequence batching control tensor must have a name for {subject.name}", "add name to control_input"
            )
        if tensor.name in tensors:
            subject.refuse(
                f"sequence batching control tensor '{tensor.name}' is specified for multiple control kinds for "
                f"{subject.name}",
                "give each control its own tensor",
            )
        tensors.add(tensor.name)
        for control in tensor.control:
            kind = _kind_name(subject, control.kind)
            if control.kind in kinds:
                subject.refuse(
                    f"sequence batching specifies multiple {kind} tensors for {subject.name}", "keep one of them"
                )
            kinds.add(control.kind)
            _check_control(subject, kind, control)


def _kind_name(subject: Subject, kind: int) -> str:
    kinds = pb.ModelSequenceBatching.Control.Kind
    if kind not in kinds.values():
        subject.refuse(
            f"sequence batching control has unknown kind {kind} for {subject.name}", f"write one of {kinds.keys()}"
        )
    return str(kinds.Name(kind))


def _check_control(subject: Subject, kind: str, control: Any) -> None:
    pairs = [pair for pair in _PAIRS if len(getattr(control, pair))]
    if kind == "CONTROL_SEQUENCE_CORRID":
        _check_correlation(subject, kind, control, pairs)
        return
    if not pairs:
        subject.refuse(
            f"sequence batching must specify {_ANY_PAIR} for {kind} for {subject.name}",
            "add fp32_false_true: [ 0, 1 ]",
        )
    if len(pairs) > 1:
        subject.refuse(
            "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
            f"'bool_false_true' for {kind} for {subject.name}",
            "keep one",
        )
    if len(getattr(control, pairs[0])) != 2:
        subject.refuse(
            f"sequence batching control '{pairs[0]}' must have exactly 2 entries for {kind} for {subject.name}",
            "write the value for false, then the one for true",
        )


def _check_correlation(subject: Subject, kind: str, control: Any, pairs: list[str]) -> None:
    if pairs:
        subject.refuse(
            f"sequence batching must not specify {_ANY_PAIR} for {kind} for {subject.name}", f"remove {pairs[0]}"
        )
    if control.data_type not in {pb.DataType.Value(name) for name in _CORRELATION_TYPES}:
        subject.refuse(
            f"unexpected data type for control {kind} for {subject.name}. Allowed data types are "
            f"{', '.join(_CORRELATION_TYPES[:-1])} and {_CORRELATION_TYPES[-1]}",
            "set data_type",
        )
