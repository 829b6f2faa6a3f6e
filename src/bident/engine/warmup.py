"""Warmup: requests that a model answers before it is ready, so that no client waits for its first slow runs.

Samples are declared in ``model_warmup``. As with Triton each of a sample's ``batch_size`` requests has
one row, they run together, ``count`` times, on every instance, past the queue; and they count in the
figures like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any, Protocol

from numpy.typing import NDArray

from bident.engine.batch import Batch
from bident.engine.lane import Lane
from bident.engine.request_lane import RequestLane
from bident.engine.sequence.controls import Controls
from bident.engine.sequence.states import States
from bident.engine.settle import Settler
from bident.errors import ConfigError, ServeError
from bident.model.config import ModelConfig
from bident.wire.infer import Column, InferInput, InferRequest, InferResponse, Outcome


@dataclass(frozen=True)
class Sample:
    """``size`` requests with the same ``inputs``, to be run ``count`` times.

    ``extra`` are inputs that no client could send: control tensors and states.
    """

    name: str
    size: int
    count: int
    inputs: Mapping[str, InferInput]
    extra: Mapping[str, InferInput]


class InPool(Protocol):
    """Runs what may take long on a thread of those that load models."""

    def __call__(self, step: Callable[..., None], /, *arguments: object) -> Awaitable[None]: ...


class Warmup:
    """Runs the samples of one model version."""

    def __init__(
        self, config: ModelConfig, samples: Iterable[Sample], settler: Settler, initial: Mapping[str, NDArray[Any]]
    ) -> None:
        """``initial``: what the implicit states of a sequence model are at the start, by the names of their inputs."""
        self._config = config
        self._samples = samples
        self._settler = settler
        batching = config.sequence_batching
        self._controls = None if batching is None else Controls(config, batching.controls)
        self._states = None if batching is None else States(config, batching.states, initial)

    async def run_on_threads(self, lanes: Sequence[Lane], in_pool: InPool) -> None:
        """Run all samples on all ``lanes``, one after the other. Raises ConfigError when one fails."""
        for lane in lanes:
            for sample, batch, errors in self._batches():
                await in_pool(lane.execute, batch)
                lane.learn(batch)
                self._settler.settle(batch)
                _check(sample, errors)

    async def run_on(self, lane: RequestLane) -> None:
        """Run all samples on ``lane``. Raises ConfigError when one fails."""
        for sample, batch, errors in self._batches():
            await _Rehearsal(lane, self._settler).run(batch)
            _check(sample, errors)
            await asyncio.sleep(0)  # an instance that answers at once would else keep the loop for all ``count`` runs

    def _batches(self) -> Iterator[tuple[Sample, Batch, list[str]]]:
        """What is to be run, in order, each with the list to which its errors will be added."""
        at_once = bool(self._config.max_batch_size)
        for sample in self._samples:
            for _ in range(sample.count):
                for size in [sample.size] if at_once else [1] * sample.size:
                    errors: list[str] = []
                    yield sample, Batch([self._request(sample, errors) for _ in range(size)], size), errors

    def _request(self, sample: Sample, errors: list[str]) -> InferRequest:
        def reply(response: InferResponse) -> Outcome:
            if response.error is not None:
                errors.append(response.error.message)
            return Outcome.ANSWERED

        request = InferRequest(self._config.name, "", "", dict(sample.inputs), monotonic_ns())
        request.queued_ns = request.received_ns
        request.reply = reply
        if self._controls is not None and self._states is not None:
            request.sequence_start = request.sequence_end = True
            self._controls.apply(request)
            self._states.apply(request, self._states.first)
            request.inputs.update(sample.extra)
        return request


def _check(sample: Sample, errors: Sequence[str]) -> None:
    if errors:
        told = "".join(f"{error}; " for error in errors)
        raise ConfigError(f"failed to run warmup sample '{sample.name}': {told}")


class _Rehearsal:
    """One batch in a lane to which no scheduler gives anything yet (:class:`bident.engine.request_lane.Owner`)."""

    def __init__(self, lane: RequestLane, settler: Settler) -> None:
        self._lane = lane
        self._owner, self._reschedule = lane.owner, lane.reschedule
        self._settler = settler
        self._waiting = 0
        self._is_freed = False
        self._ended = asyncio.Event()

    async def run(self, batch: Batch) -> None:
        """Return once all requests of ``batch`` have been answered and the instance is free again."""
        lane = self._lane
        self._waiting = len(batch.requests)
        lane.owner, lane.reschedule = self, self._end_rescheduled
        try:
            lane.run(batch)
            await self._ended.wait()
        finally:
            lane.owner, lane.reschedule = self._owner, self._reschedule
            lane.owner.lane_changed()

    def _end_rescheduled(self, batch: Batch, request: InferRequest) -> None:
        """The model wants ``request`` once more: it has been warmed up all the same."""
        self._answered(1)

    def lane_changed(self) -> None:
        """The instance has gone, or has come back."""
        self._owner.lane_changed()

    def lane_freed(self, lane: RequestLane) -> None:
        """The batch has been executed."""
        self._is_freed = True
        self._answered(0)

    def batch_answered(self, batch: Batch, count: int) -> None:
        """Whatever of ``batch`` awaited an answer has it."""
        self._settler.settle(batch)
        self._answered(count)

    def request_answered(
        self,
        batch: Batch,
        request: InferRequest,
        answer: Sequence[Column] | ServeError,
        parameters: dict[str, Any] | None,
        *,
        final: bool,
    ) -> None:
        """One answer to one request."""
        self._settler.answer(batch, request, answer, parameters, final=final)
        self._answered(int(final))

    def _answered(self, count: int) -> None:
        self._waiting -= count
        if self._is_freed and not self._waiting:
            self._ended.set()
