"""Implicit state: outputs of a model that the server keeps, and feeds to the next request of the same sequence."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from bident.model.config import ModelConfig, TensorSpec
from bident.model.sequence_batching import State
from bident.wire.infer import Column, InferInput, InferRequest

Kept = dict[str, NDArray[Any]]
"""The states of one sequence by the names of their inputs; one row each where the model batches."""


def executed_config(config: ModelConfig) -> ModelConfig:
    """``config`` as lanes need it: the states are inputs and outputs too, checked like any other."""
    batching = config.sequence_batching
    if batching is None or not batching.states:
        return config
    inputs = {state.input_name: TensorSpec(state.input_name, state.datatype, state.dims) for state in batching.states}
    outputs = {
        state.output_name: TensorSpec(state.output_name, state.datatype, state.dims) for state in batching.states
    }
    return dataclasses.replace(config, inputs={**config.inputs, **inputs}, outputs={**outputs, **config.outputs})


class States:
    """The states of one model."""

    def __init__(self, config: ModelConfig, states: Sequence[State], initial: Mapping[str, NDArray[Any]]) -> None:
        """``initial``: what each state is at the start of a sequence, by the name of its input."""
        self._states = states
        self._initial = dict(initial)
        self._input_of = {state.output_name: state.input_name for state in states}
        self._declared = config.outputs.keys()
        self._variable = [state.input_name for state in states if -1 in state.dims]

    @property
    def first(self) -> Kept:
        """What a sequence starts with."""
        return self._initial.copy()

    def apply(self, request: InferRequest, kept: Kept) -> None:
        """Add the states to the inputs of ``request``; it can share batches with states of the same shapes only."""
        for state in self._states:
            array = kept[state.input_name]
            request.inputs[state.input_name] = InferInput(
                state.input_name, state.datatype, array.shape, array.size, array
            )
        if self._variable:
            request.signature = (request.signature, *(kept[name].shape for name in self._variable))
        if request.outputs is not None:
            request.outputs = list(dict.fromkeys([*request.outputs, *self._input_of]))

    def keep(self, kept: Kept, columns: Sequence[Column], row: int | None) -> None:
        """Take the new states out of ``columns``: of the batch's ``row``; None: they are whole."""
        for column in columns:
            name = self._input_of.get(column.name)
            if name is not None:
                # A view would keep the other sequences' rows, and what the client is sent is not to change.
                kept[name] = (column.array if row is None else column.array[row : row + 1]).copy()

    def shown(self, columns: Sequence[Column]) -> list[Column]:
        """Those of ``columns`` that clients get: states that are not declared as outputs stay here."""
        return [column for column in columns if column.name in self._declared or column.name not in self._input_of]
