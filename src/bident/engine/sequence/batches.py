"""Makes the batches of sequences: whose request is at which place, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Listed
from typing import Any

from numpy.typing import NDArray

from bident.engine.batch import Batch
from bident.engine.sequence.controls import Controls
from bident.engine.sequence.slots import Sequence
from bident.engine.sequence.states import States
from bident.errors import invalid_arg
from bident.model.config import ModelConfig
from bident.model.sequence_batching import SequenceBatching
from bident.wire.infer import Column, InferInput, InferRequest, InferResponse, Outcome, zeros
from bident.wire.numbers import to_array
from bident.wire.shown import shown

_MOST_ID_BYTES = 128
_MOST_ID = 2**64 - 1


class Filler(InferRequest):
    """Keeps a place of a batch whose sequence has nothing to ask. Nobody waits for its answer."""

    cancelled = True


def _unheard(_: InferResponse) -> Outcome:
    return Outcome.LATER  # which never comes: what is no request counts as neither success nor failure


class Batches:
    """What goes to the model of sequences' requests, and what of its answers stays here."""

    def __init__(self, config: ModelConfig, batching: SequenceBatching, initial: Mapping[str, NDArray[Any]]) -> None:
        """``initial``: what each state is at the start of a sequence, by the name of its input."""
        self._model = config.name
        self._batching = config.max_batch_size > 0
        self._controls = Controls(config, batching.controls)
        self._states = States(config, batching.states, initial) if batching.states else None

    @property
    def have_states(self) -> bool:
        """Whether a request needs the answer to the one before it."""
        return self._states is not None

    def check(self, request: InferRequest) -> None:
        """Raise INVALID_ARG when ``request`` can be no part of a sequence.

        Its numbers are checked here: a request that fails later would leave its place in the batch to another.
        """
        if request.batch_size > 1:
            raise invalid_arg(
                f"inference request to model '{self._model}' must specify batch-size 1 due to requirements of sequence "
                f"batcher: its inputs have {request.batch_size} rows; send them one by one"
            )
        identity = request.sequence_id
        if isinstance(identity, str):
            if len(identity.encode("utf-8", "replace")) > _MOST_ID_BYTES:
                raise invalid_arg(
                    f"string correlation ID cannot be longer than {_MOST_ID_BYTES} characters: {shown(identity)}"
                )
        elif identity > _MOST_ID:
            raise invalid_arg(f"the sequence id {shown(identity)} is no 64-bit number: send a smaller one, or text")
        self._controls.check(request)
        for tensor in request.inputs.values():
            if isinstance(tensor.data, list):
                tensor.data = to_array(tensor.name, tensor.datatype, tensor.data).reshape(tensor.shape)

    def prepare(self, sequence: Sequence) -> None:
        """Complete the next request of ``sequence``: the one before it has been answered."""
        request = sequence.waiting[0]
        sequence.wanted = request.outputs
        self._controls.apply(request)
        if self._states is not None:
            if request.sequence_start or not sequence.kept:
                sequence.kept = self._states.first
            self._states.apply(request, sequence.kept)

    def join(self, sequences: Listed[Sequence | None]) -> Batch:
        """Take the next request of each of ``sequences`` into a batch; None is a place that stays empty."""
        like = next(sequence.waiting[0] for sequence in sequences if sequence is not None)
        zero = self._zeros(like) if None in sequences else {}
        requests = [_filler(like, zero) if sequence is None else sequence.waiting.popleft() for sequence in sequences]
        return Batch(requests, len(requests))

    def keep(self, sequence: Sequence, request: InferRequest, columns: Listed[Column], row: int | None) -> None:
        """Keep the states that ``columns`` hold for ``request`` of ``sequence``: in ``row``; None: in all of them."""
        if self._states is not None:
            request.outputs = sequence.wanted
            self._states.keep(sequence.kept, columns, None if row is None or not self._batching else row)

    def shown(self, columns: Listed[Column]) -> Listed[Column]:
        """What clients get of an answer."""
        return columns if self._states is None else self._states.shown(columns)

    def _zeros(self, like: InferRequest) -> dict[str, InferInput]:
        """The inputs of a place that stays empty in the batch of ``like``."""
        inputs: dict[str, InferInput] = {}
        for tensor in like.inputs.values():
            array = zeros(tensor.datatype, tensor.shape)
            inputs[tensor.name] = InferInput(tensor.name, tensor.datatype, tensor.shape, tensor.count, array)
        self._controls.apply_empty(inputs)
        return inputs


def _filler(like: InferRequest, inputs: dict[str, InferInput]) -> Filler:
    filler = Filler(like.model_name, like.model_version, "", inputs, like.received_ns)
    filler.reply = _unheard
    return filler
