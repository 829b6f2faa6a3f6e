"""Lanes of instances that wait for their turn: to a scheduler they only seem to take longer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from bident.backends.base import Instance, RequestInstance
from bident.engine.batch import Batch
from bident.engine.calls import Calls, Models
from bident.engine.lane import Lane
from bident.engine.rate import Turn
from bident.engine.request_lane import RequestLane
from bident.errors import Code, ServeError
from bident.model.config import ModelConfig
from bident.wire.infer import InferRequest


class RatedLane(Lane):
    """A lane whose instance runs when it has its resources."""

    def __init__(
        self, config: ModelConfig, instance: Instance, loop: asyncio.AbstractEventLoop, label: str, turn: Turn
    ) -> None:
        super().__init__(config, instance, loop, label)
        self._turn = turn

    def is_quick(self, requests: Iterable[InferRequest], rows: int) -> bool:
        """Whether a batch should run inline: also, whether it may run now.

        What runs inline has ended before anybody else could want anything, so it need not take its turn.
        """
        return super().is_quick(requests, rows) and self._turn.is_free

    def run_on_thread(self, batch: Batch, done: Callable[[Batch], None]) -> None:
        """Execute ``batch`` when it is its turn; ``done`` is called on the event loop afterwards."""

        def ended(batch: Batch) -> None:
            self._turn.give_back()
            done(batch)

        self._turn.take(lambda: super(RatedLane, self).run_on_thread(batch, ended))

    def execute(self, batch: Batch) -> None:
        """Gather, run, scatter, here and now."""
        self._turn.executions += 1
        super().execute(batch)


class RatedRequestLane(RequestLane):
    """The same for an instance that sees single requests."""

    def __init__(self, config: ModelConfig, instance: RequestInstance, models: Models, turn: Turn) -> None:
        calls = RatedCalls(models, turn)
        super().__init__(config, instance, calls)
        self._turn = turn
        self._held: Batch | None = None
        turn.lends = lambda: calls.is_waiting

    @property
    def is_busy(self) -> bool:
        """Whether it has a batch that it executes, or will."""
        return self._held is not None or super().is_busy

    @property
    def is_deserted(self) -> bool:
        """Whether nobody waits any more for what is open here."""
        waiting = self._held.requests if self._held is not None else ()
        return all(request.cancelled for request in waiting) and super().is_deserted

    def run(self, batch: Batch) -> None:
        """Have ``batch`` executed when it is its turn."""
        self._held = batch
        self._turn.take(self._run_held)

    def _run_held(self) -> None:
        batch, self._held = self._held, None
        if batch is not None:
            self._turn.executions += 1
            super().run(batch)
            self.tell_cancelled()  # clients may have gone while it waited

    def freed(self) -> None:
        """The instance has executed its batch, or could not."""
        self._turn.give_back()
        super().freed()

    async def close(self) -> None:
        """End the instance; a batch that still waits for its turn gets an error."""
        await super().close()
        batch, self._held = self._held, None
        if batch is not None:
            self._turn.give_back()
            batch.error = ServeError(
                Code.UNAVAILABLE, f"model '{self.name}' was unloaded while the request waited for the rate limiter"
            )
            self.owner.batch_answered(batch, len(batch.requests))


class RatedCalls(Calls):
    """What an instance asks other models: meanwhile it lends its resources."""

    def __init__(self, models: Models, turn: Turn) -> None:
        super().__init__(models)
        self._turn = turn
        self._changes = 0
        """How many loads and unloads it waits for."""

    @property
    def is_waiting(self) -> bool:
        """Whether the instance has asked for something that it has not got yet."""
        return bool(self.open or self._changes)

    def infer(self, request: InferRequest) -> None:
        """Have another model answer ``request``. Raises ServeError if it is refused, or would never be answered."""
        super().infer(request)
        self._turn.look()

    async def load(self, name: str, config: str | None, files: dict[str, bytes]) -> None:
        """Load or reload a model, whose warmup may need what is lent meanwhile. Raises ServeError."""
        with self._lending():
            await super().load(name, config, files)

    async def unload(self, name: str, *, dependents: bool) -> None:
        """Take a model out of service, which may wait for a load of it. Raises ServeError."""
        with self._lending():
            await super().unload(name, dependents=dependents)

    @contextmanager
    def _lending(self) -> Iterator[None]:
        self._changes += 1
        self._turn.look()
        try:
            yield
        finally:
            self._changes -= 1
