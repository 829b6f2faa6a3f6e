"""Instances of the kind that sees single requests, driven by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any

import numpy as np

from bident.backends.base import Answers, RequestInstance, Server
from bident.engine.servable import Servable
from bident.errors import Code, ServeError
from bident.model.config import ModelConfig
from bident.wire.infer import InferRequest
from tests.unit.engine.engine_fakes import (
    BATCHING,
    model_config,
    servable_of,
    until,
)

BROKEN = ServeError(Code.INTERNAL, "the model failed")
"""What a batch fails with when its instance dies."""


class Held:
    """A batch that an instance has, until the test says what becomes of it."""

    def __init__(self, requests: Sequence[InferRequest], inputs: dict[str, np.ndarray], answers: Answers) -> None:
        self.requests = list(requests)
        self.inputs = inputs
        self.answers = answers

    @property
    def rows(self) -> list[int]:
        return [request.batch_size for request in self.requests]

    def executed(self) -> None:
        now = monotonic_ns()
        self.answers.executed(now - 1000, now)

    def finish(self, outputs: dict[str, Any] | None = None, rows: Sequence[int] | None = None) -> None:
        """Executed, and all answered together: Y = X unless told otherwise."""
        self.executed()
        self.answers.answered(outputs or {"Y": self.inputs["X"]}, rows or self.rows)

    def reply(self, index: int, value: float = 0, *, final: bool = True) -> None:
        count = self.requests[index].batch_size
        self.answers.replied(index, {"Y": np.array([[value, -value]] * count, np.float32)}, final=final)

    def end(self, index: int) -> None:
        """Nothing more comes for a request."""
        self.answers.replied(index, {})


class Hand(RequestInstance):
    """An instance that does nothing by itself."""

    def __init__(self) -> None:
        self.batches: list[Held] = []
        self.cancelled: list[list[int]] = []
        self.refusal: ServeError | None = None
        self.closed = 0
        self.server: Server
        self._changed: Callable[[], None]

    async def start(self, server: Server, changed: Callable[[], None]) -> None:
        self.server, self._changed = server, changed
        self.come_back()

    def execute_requests(
        self, requests: Sequence[InferRequest], inputs: dict[str, np.ndarray], answers: Answers
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.batches.append(Held(requests, inputs, answers))

    def cancel(self, answers: Answers, indexes: Sequence[int]) -> None:
        assert any(held.answers is answers for held in self.batches)
        self.cancelled.append(list(indexes))

    async def close(self) -> None:
        self.closed += 1

    def go(self, reason: str = "it was killed", *, lost: bool = False) -> None:
        self.is_available, self.is_lost, self.reason = False, lost, reason
        self._changed()

    def come_back(self) -> None:
        self.is_available, self.is_lost, self.reason = True, False, ""
        self._changed()

    def die(self, *unanswered: Held) -> None:
        """Go as a worker does: first it is not there any more, then its batches fail."""
        self.go()
        for held in unanswered:
            held.executed()
            for index in range(len(held.requests)):
                held.answers.replied(index, {}, error=BROKEN)

    @property
    def firsts(self) -> list[list[float]]:
        return [held.inputs["X"][:, 0].tolist() for held in self.batches]


async def served(*hands: Hand, config: ModelConfig | None = None) -> Servable:
    servable = servable_of(config or model_config(BATCHING), *hands)  # type: ignore[arg-type]
    await servable.start()
    return servable


async def running(hand: Hand, count: int = 1) -> Held:
    await until(lambda: len(hand.batches) == count, "an execution")
    return hand.batches[-1]
