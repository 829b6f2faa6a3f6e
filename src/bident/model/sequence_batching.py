"""``sequence_batching`` as the engine acts upon it: strategy, control tensors, states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bident.model.proto import pb
from bident.wire.datatypes import BY_CONFIG_NAME, DATATYPES, DataType

_FALSE_TRUE = {"int32_false_true": "INT32", "fp32_false_true": "FP32", "bool_false_true": "BOOL"}

START, END, READY, CORRID = "START", "END", "READY", "CORRID"
"""What a control tensor says of a request: Triton's words without ``CONTROL_SEQUENCE_``."""

INITIAL_STATE_FOLDER = "initial_state"
"""Where in a model's folder the files lie that states start with."""


@dataclass(frozen=True)
class Control:
    """One control tensor. ``values`` are those for false and true; empty for CORRID, which carries the id itself."""

    kind: str
    name: str
    datatype: DataType
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class InitialState:
    """What a state is when its sequence starts: zeros, or what ``data_file`` (in ``initial_state``) holds."""

    dims: tuple[int, ...]
    data_file: str = ""


@dataclass(frozen=True)
class State:
    """An output that becomes an input of the same sequence's next request. ``dims`` are without the batch dimension."""

    input_name: str
    output_name: str
    datatype: DataType
    dims: tuple[int, ...]
    initial: InitialState


@dataclass(frozen=True)
class SequenceBatching:
    """How the requests of sequences run together. Times in microseconds.

    ``is_oldest`` tells the strategy: *oldest* batches whichever sequences have a request, up to
    ``max_candidates`` of them at a time; *direct* keeps a sequence at one place of the batch.
    """

    is_oldest: bool = False
    max_idle_us: int = 1_000_000
    max_queue_delay_us: int = 0
    controls: tuple[Control, ...] = ()
    states: tuple[State, ...] = ()
    is_iterative: bool = False
    max_candidates: int = 0
    preferred_batch_sizes: tuple[int, ...] = ()
    minimum_slot_utilization: float = 0.0


def read(batching: Any) -> SequenceBatching:
    """Read the message ``sequence_batching`` of a config that has passed ``validate``."""
    is_oldest = batching.HasField("oldest")
    strategy = batching.oldest if is_oldest else batching.direct
    return SequenceBatching(
        is_oldest=is_oldest,
        max_idle_us=batching.max_sequence_idle_microseconds,
        max_queue_delay_us=strategy.max_queue_delay_microseconds,
        controls=tuple(
            _control(tensor.name, control) for tensor in batching.control_input for control in tensor.control
        ),
        states=tuple(_state(state) for state in batching.state),
        is_iterative=batching.iterative_sequence,
        max_candidates=max(0, batching.oldest.max_candidate_sequences) if is_oldest else 0,
        preferred_batch_sizes=tuple(sorted(batching.oldest.preferred_batch_size)) if is_oldest else (),
        minimum_slot_utilization=0.0 if is_oldest else batching.direct.minimum_slot_utilization,
    )


def _control(name: str, control: Any) -> Control:
    kind = pb.ModelSequenceBatching.Control.Kind.Name(control.kind).removeprefix("CONTROL_SEQUENCE_")
    for field, word in _FALSE_TRUE.items():
        if values := getattr(control, field):
            return Control(kind, name, DATATYPES[word], tuple(values))
    return Control(kind, name, _datatype(control.data_type))


def _state(state: Any) -> State:
    dims = tuple(state.dims)
    initial = InitialState(tuple(1 if dim == -1 else dim for dim in dims))
    for declared in state.initial_state:
        initial = InitialState(tuple(declared.dims), declared.data_file)
    return State(state.input_name, state.output_name, _datatype(state.data_type), dims, initial)


def _datatype(number: int) -> DataType:
    return BY_CONFIG_NAME[pb.DataType.Name(number)]
