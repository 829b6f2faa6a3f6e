"""An ensemble in service: a model whose answers come from other models, step by step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from time import monotonic_ns
from typing import Any

import numpy as np

from bident.engine.calls import Models
from bident.engine.clients import Clients
from bident.engine.ensemble_members import Members
from bident.engine.ensemble_plan import Planner, fitted
from bident.engine.ensemble_run import SEQUENCE, Flowing, Run, Wave
from bident.engine.merge import Merge
from bident.engine.servable import Servable
from bident.engine.settle import Settler
from bident.engine.stats import FailureReason, ModelStats
from bident.errors import Code, ServeError
from bident.model.config import ModelConfig
from bident.wire.infer import Column, InferRequest, InferResponse, Outcome

logger = logging.getLogger("bident.engine")

_ANY = -1


class EnsembleScheduler:
    """Sends requests through the steps. Has no queue: those of the members decide what runs when."""

    pending = 0
    """Triton counts no waiting requests for ensembles: their steps wait, in other queues."""

    def __init__(self, config: ModelConfig, version: str, stats: ModelStats, members: Members, models: Models) -> None:
        self._config = config
        self._version = version
        self._stats = stats
        self._settler = Settler(config, version, stats)
        self._merge = Merge(config)
        self._planner = Planner(config)
        self._members = members
        self._models = models
        self._batching = config.max_batch_size > 0
        self._optional = dict.fromkeys(config.inputs.keys() - config.required_inputs)
        self._reshapes = any(spec.reshape is not None for spec in config.inputs.values())
        self._limit = config.proto.ensemble_scheduling.max_inflight_requests
        self._runs: dict[Run, None] = {}
        self.on_idle: Callable[[], None] | None = None
        """Called whenever nothing is under way any more."""

    @property
    def has_sequences(self) -> bool:
        """Whether a member has: its sequences go on through the ensemble."""
        return any(member.scheduler.has_sequences for member in self._members.present())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._runs

    def submit(self, request: InferRequest) -> None:
        """Send ``request`` on its way. Raises ServeError when a member is missing, or a number does not fit."""
        request.queued_ns = monotonic_ns()
        try:
            cast = self._members.cast()
            tensors = self._inputs(request)
        except ServeError:
            self._stats.record_failure(FailureReason.OTHER, request.queued_ns - request.received_ns)
            raise
        run = Run(self, self._models, request, cast, self._planner.plan(request.outputs), self._limit)
        self._runs[run] = None
        run.begin(tensors)

    def drain(self, *, closing: bool) -> None:
        """Nothing ends here but by itself."""

    def discard_cancelled(self) -> None:
        """End what no client waits for any more."""
        for run in [run for run in self._runs if run.request.cancelled]:
            run.cancel()

    def _inputs(self, request: InferRequest) -> dict[str, Flowing | None]:
        """The tensors that ``request`` brings; lists stay lists, which the members' batches turn into arrays."""
        rows = request.batch_size if self._batching else 0
        tensors: dict[str, Flowing | None] = self._optional.copy()
        if self._reshapes:
            for name, array in self._merge.gather([request], request.batch_size).items():
                tensors[name] = Flowing(self._config.inputs[name].datatype, array.shape, array.size, array, rows)
        else:
            for name, given in request.inputs.items():
                tensors[name] = Flowing(given.datatype, given.shape, given.count, given.data, rows)
        return tensors

    # What a run tells (ensemble_run.Owner)

    def run_answered(self, run: Run, wave: Wave, *, final: bool) -> None:
        """Answer the request of ``run`` with the outputs of ``wave``."""
        try:
            response = self._response(run.request, wave)
        except ServeError as error:
            run.end(error)
            return
        # A model that is not decoupled answers once, whatever its members have become meanwhile.
        response.final = final or not self._config.decoupled
        if response.final:
            self._close(run, response)
            run.end(None)
        else:
            self._settler.reply(run.request, response)

    def run_ended(self, run: Run, error: ServeError | None) -> None:
        """Say the last word, unless that has been said."""
        if run in self._runs:
            if error is not None:
                self._fail(run, error)
            elif self._config.decoupled:
                self._close(run, InferResponse(self._config.name, self._version, run.request.id, [], 0, -1))
            else:
                self._fail(run, self._deadlock("no answer came that has all of them"))
        if self.on_idle is not None and self.is_idle:
            self.on_idle()

    def _fail(self, run: Run, error: ServeError) -> None:
        del self._runs[run]
        reason = FailureReason.CANCELED if error.code is Code.CANCELLED else FailureReason.OTHER
        error = ServeError(error.code, f"in ensemble '{self._config.name}', {error.message}")
        try:
            self._settler.fail(run.request, error, reason)
        except RecursionError:
            self._runs[run] = None  # not answered: it is tried again
            raise

    def _close(self, run: Run, response: InferResponse) -> None:
        """Give the last answer, and add up the figures once it has been written."""
        del self._runs[run]
        spent, outer = run.spent, run.request.spent
        if outer is not None:
            outer.add(spent.queue_ns, spent.input_ns, spent.infer_ns, spent.output_ns)
        try:
            outcome = self._settler.reply(run.request, response)
        except RecursionError:
            self._runs[run] = None  # not answered: who called this is told, and ends it
            raise
        if outcome is Outcome.LATER:
            response.settled = partial(self._count_late, run)
        else:
            self._count(run, outcome is not Outcome.FAILED)

    def _count_late(self, run: Run, answered: bool) -> None:
        self._count(run, answered)
        if run.request.trace is not None:
            run.request.trace.end()

    def _count(self, run: Run, answered: bool) -> None:
        request, spent = run.request, run.spent
        if not answered:
            self._settler.note_failure(request, FailureReason.OTHER)
            return
        request_ns = monotonic_ns() - request.received_ns
        self._stats.record_batch(
            1,
            request.batch_size,
            spent.queue_ns,
            request_ns,
            spent.input_ns,
            spent.infer_ns,
            spent.output_ns,
            executed_rows=request.batch_size,
        )
        if self._stats.summaries is not None:
            self._stats.summaries.record(
                [request_ns], [spent.queue_ns], spent.input_ns, spent.infer_ns, spent.output_ns
            )

    # Answers

    def _response(self, request: InferRequest, wave: Wave) -> InferResponse:
        """The outputs of ``wave`` as the ensemble declares them. Raises INTERNAL where they cannot be that."""
        arrays: dict[str, Any] = {}
        parameters: dict[str, Any] = {}
        for name in self._config.outputs if request.outputs is None else request.outputs:
            flowing = wave.tensors[name]
            if flowing is not None:
                dims = self._config.outputs[name].model_dims
                shape = fitted(dims, batching=self._batching, rows=flowing.rows, shape=flowing.shape)
                array = np.asarray(flowing.data)  # which it is: steps write arrays
                arrays[name] = array if shape is flowing.shape else array.reshape(shape)
                if flowing.sequence is not None:
                    parameters.update(zip(SEQUENCE, flowing.sequence, strict=True))
                if flowing.parameters:
                    parameters.update(flowing.parameters)
            elif request.outputs is not None:
                raise self._deadlock(f"'{name}', which the request asks for, was left out by the model that makes it")
        columns: list[Column] = self._merge.scatter(arrays, _ANY)
        if request.outputs is not None:
            by_name = {column.name: column for column in columns}
            columns = [by_name[name] for name in request.outputs]
        response = InferResponse(self._config.name, self._version, request.id, columns, 0, -1)
        response.parameters = parameters or None
        return response

    def _deadlock(self, why: str) -> ServeError:
        return ServeError(
            Code.INVALID_ARG,
            f"unexpected deadlock, at least one output is not set while no more ensemble steps can be made: {why}",
        )


class EnsembleServable(Servable):
    """A version of an ensemble in service. It has no instances; its members have."""

    def _make_scheduler(self, stats: ModelStats, clients: Clients, models: Models) -> EnsembleScheduler:
        self._members = Members(self.config, models)
        return EnsembleScheduler(self.config, str(self.version), stats, self._members, models)

    @property
    def labels(self) -> dict[str, list[str]]:
        """An output without labels of its own has those of the model that makes it."""
        return {**self._members.labels, **super().labels}

    @property
    def members(self) -> list[Servable]:
        """The versions that take part in answering a request, as far as they are there."""
        return self._members.present()

    @property
    def is_available(self) -> bool:
        """Whether all members are there."""
        return not self.reason

    @property
    def reason(self) -> str:
        """Which member is not there, and why; empty if all are."""
        try:
            cast = self._members.cast()
        except ServeError as error:
            return error.message
        gone = [servable for servable in cast.servables if not servable.is_available]
        return "; ".join(f"model '{servable.name}' is not ready: {servable.reason}" for servable in gone)

    async def is_ready(self) -> bool:
        """Whether all members are there and say that they are ready."""
        if not self.is_available:
            return False
        return all(await asyncio.gather(*(member.is_ready() for member in self.members)))
