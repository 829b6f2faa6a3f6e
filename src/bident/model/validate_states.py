"""Checks of the implicit states that ``sequence_batching`` declares."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bident.model.confine import escapes
from bident.model.hints import listed
from bident.model.proto import pb
from bident.model.subject import Subject
from bident.model.validate_tensors import check_count, check_datatype, check_dims


def check_states(subject: Subject, batching: Any) -> None:
    """Check names, datatypes and shapes of every ``state``, and what it starts as."""
    _check_unique(subject, batching)
    for state in batching.state:
        _check_state(subject, state)


def _check_unique(subject: Subject, batching: Any) -> None:
    """Triton warns of a state that is declared twice, and takes one of them."""
    controls = [tensor.name for tensor in batching.control_input]
    fed = [*(tensor.name for tensor in subject.proto.input), *controls, *(state.input_name for state in batching.state)]
    for role, names in (("input_name", fed), ("output_name", [state.output_name for state in batching.state])):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            subject.refuse(
                f"{listed(twice)} is an input or a state more than once ({role}) for {subject.name}",
                "the scheduler feeds controls and states itself: name each once, and not under input",
            )


def _check_state(subject: Subject, state: Any) -> None:
    if not (state.input_name and state.output_name):
        subject.refuse(
            f"sequence batching state must specify 'input_name' and 'output_name' for {subject.name}", "add both"
        )
    label = f"sequence batching state '{state.input_name}' "
    check_datatype(subject, label, state.data_type)
    check_count(subject, f"{label}dims", state.dims)
    check_dims(subject, f"{label}dimension", state.dims)
    if state.use_growable_memory:
        subject.refuse(
            "'use_growable_memory' can only work with KIND_GPU model instances right now. Please either change the "
            f"instance type to KIND_GPU or set 'use_growable_memory' to false for state input '{state.input_name}'",
            "remove use_growable_memory",
        )
    for output in subject.proto.output:
        if output.name == state.output_name and output.data_type != state.data_type:
            words = [pb.DataType.Name(number) for number in (output.data_type, state.data_type)]
            subject.refuse(
                f"{label}is also output '{output.name}' of {subject.name}, with data_type {words[0]}, not {words[1]}",
                "make them agree",
            )
    if len(state.initial_state) > 1:
        subject.refuse(
            f"initial_state field for state input '{state.input_name}' must contain exactly one or zero element. "
            f"Found '{len(state.initial_state)}' elements.",
            "keep one",
        )
    for initial in state.initial_state:
        _check_initial(subject, state, initial)


def _check_initial(subject: Subject, state: Any, initial: Any) -> None:
    name = state.input_name
    _check_data(subject, name, initial)
    if initial.data_type != state.data_type:
        subject.refuse(
            f"The data type used for 'initial_state' field of state '{name}' does not match the state data type.",
            f"write data_type: {pb.DataType.Name(state.data_type)} in both",
        )
    if not initial.name:
        subject.refuse(f"Field 'name' must be set when using initial_state for state input '{name}'.", "add name")
    if len(initial.dims) != len(state.dims):
        subject.refuse(
            f"Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input "
            f"'{name}'. {len(initial.dims)} != {len(state.dims)}",
            f"the state has dims {list(state.dims)}",
        )
    for dim, declared in zip(initial.dims, state.dims, strict=True):
        if dim == -1:
            subject.refuse(
                f"'initial_state' field for state input name '{name}' contains variable dimensions.",
                "write the size that the state starts with",
            )
        if dim < 1 or declared not in (-1, dim):
            subject.refuse(
                f"'initial_state' dim for input name '{name}' doesn't match 'state' dim description. "
                f"{dim} != {declared}",
                f"the state has dims {list(state.dims)}",
            )


def _check_data(subject: Subject, name: str, initial: Any) -> None:
    source = initial.WhichOneof("state_data")
    if source is None:
        subject.refuse(
            f"initial_state setting expects state '{name}' to have state_data set", "add zero_data: true or data_file"
        )
    if source == "data_file" and escapes(initial.data_file, below="initial_state"):
        subject.refuse(
            f"data_file '{initial.data_file}' of sequence batching state '{name}' must stay within model directory",
            "name a file of the folder 'initial_state'",
        )
