"""The tensors by which the scheduler tells a model where in its sequence a request stands."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bident.errors import ServeError, invalid_arg
from bident.model.config import ModelConfig
from bident.model.sequence_batching import CORRID, END, READY, START, Control
from bident.wire.datatypes import BYTES
from bident.wire.infer import InferInput, InferRequest
from bident.wire.shown import shown


class Controls:
    """The control tensors of one model, of shape [1] (with a batch dimension [1, 1]).

    Which says what is Triton's: a place of the batch without a request has READY, and all others, false.
    """

    def __init__(self, config: ModelConfig, controls: Iterable[Control]) -> None:
        self._shape = (1, 1) if config.max_batch_size else (1,)
        self._model = config.name
        flags = [control for control in controls if control.kind != CORRID]
        self._correlation = next((control for control in controls if control.kind == CORRID), None)
        self._told = {
            (start, end): [
                self._flag(control, {START: start, END: end, READY: True}[control.kind]) for control in flags
            ]
            for start in (False, True)
            for end in (False, True)
        }
        self._empty = [self._flag(control, False) for control in flags]

    def check(self, request: InferRequest) -> None:
        """Raise INVALID_ARG when the model's CORRID tensor cannot carry the id of ``request``.

        Triton writes as many bytes of the id as fit.
        """
        control, identity = self._correlation, request.sequence_id
        if control is None:
            return
        if isinstance(identity, str) is not (control.datatype is BYTES):
            given, send = ("text", "a number") if isinstance(identity, str) else ("a number", "text")
            raise self._unfit(control, f"the sequence id {shown(identity)} is {given}: send {send}")
        if isinstance(identity, int) and identity > np.iinfo(control.datatype.numpy).max:
            raise self._unfit(control, f"the sequence id {identity} does not fit: send a smaller one")

    def apply(self, request: InferRequest) -> None:
        """Add to the inputs of ``request`` what the model is told of it."""
        inputs = dict(request.inputs)
        for tensor in self._told[request.sequence_start, request.sequence_end]:
            inputs[tensor.name] = tensor
        if self._correlation is not None:
            inputs[self._correlation.name] = self._identity(self._correlation, request.sequence_id)
        request.inputs = inputs

    def apply_empty(self, inputs: dict[str, InferInput]) -> None:
        """Add to ``inputs`` that they only keep a place."""
        for tensor in self._empty:
            inputs[tensor.name] = tensor
        if self._correlation is not None:
            nobody = "" if self._correlation.datatype is BYTES else 0
            inputs[self._correlation.name] = self._identity(self._correlation, nobody)

    def _flag(self, control: Control, is_set: bool) -> InferInput:
        array = np.full(self._shape, control.values[is_set], control.datatype.numpy)
        return InferInput(control.name, control.datatype, self._shape, 1, array)

    def _identity(self, control: Control, identity: int | str) -> InferInput:
        array = np.empty(self._shape, control.datatype.numpy)
        array[...] = identity.encode("utf-8", "replace") if isinstance(identity, str) else identity
        return InferInput(control.name, control.datatype, self._shape, 1, array)

    def _unfit(self, control: Control, what: str) -> ServeError:
        return invalid_arg(
            f"model '{self._model}' takes sequence ids as {control.datatype.name} (its control input "
            f"'{control.name}'), and {what}"
        )
