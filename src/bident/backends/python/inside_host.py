"""Keeps one model inside the server, on the event loop: start, hand over, take back, end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from bident.backends.base import Arrays
from bident.backends.python.inside_intake import Job
from bident.backends.python.inside_link import InsideLink
from bident.backends.python.inside_thread import ModelThread
from bident.backends.python.inside_unheard import Unheard
from bident.backends.python.messages import Answers, Event, MetricChange, Reply
from bident.backends.python.metrics import CustomMetrics
from bident.backends.python.outgoing import CODES
from bident.backends.python.spec import WorkerSpec
from bident.backends.python.supervisor import Patience, State
from bident.backends.python.tensors import worded
from bident.errors import Code, ServeError

logger = logging.getLogger("bident.python")

_MOMENT_SECONDS = 0.0001


class InsideHost:
    """What a Supervisor and its Worker are to a model in a process of its own; there is no restart."""

    def __init__(
        self,
        spec: WorkerSpec,
        deliver: Callable[[list[Event]], None],
        changed: Callable[[State], None],
        metrics: CustomMetrics,
        patience: Patience,
        *,
        inline: bool = False,
    ) -> None:
        """``deliver`` gets what the model says, ``changed`` every new ``state``, both on the loop.

        ``inline``: the loop executes batches itself; then the model must never wait for it.
        """
        self.spec = spec
        self.state = State.STARTING
        self.since = time.time()
        self.reason = ""
        self._deliver = deliver
        self._changed = changed
        self._patience = patience
        self._inline = inline
        self._metrics = metrics.worker()
        self._said = Unheard()
        self._link = InsideLink(spec.instance_name, self._post, self._metrics, self._said.wait_for_room)
        self._thread = ModelThread(spec, self._link)
        self._announced = False
        self._going_on = False
        self._watching = False
        self._bell = threading.Lock()
        self._bell.acquire()
        self._open: dict[int, set[int]] = {}
        self._last_handed: tuple[int, list[int]] = (0, [])
        self._loop: asyncio.AbstractEventLoop
        self._context = contextvars.Context()
        self._ended: asyncio.Future[dict[str, Any]]

    @property
    def worker(self) -> InsideHost | None:
        """Itself, while the model is there."""
        return self if self.state is State.READY else None

    def answered(self) -> None:
        """Nothing had to wait."""

    async def start(self) -> None:
        """Have the model imported and initialised on its thread. Raises ServeError."""
        loop = self._loop = asyncio.get_running_loop()
        self._link.loop_thread = threading.get_ident()
        self._ended = loop.create_future()
        try:
            said = await self._started()
            if "error" in said:
                raise ServeError(Code.INTERNAL, said["error"])
            if self._inline:
                self._check_inline()
        except BaseException as error:
            self._thread.end()
            self._hear_no_more()
            self._enter(State.FAILED, str(error))
            raise
        self._link.is_open = not self._inline
        self._enter(State.READY, "")

    def run(self, job: Job) -> None:
        """Have a batch executed. Raises ServeError when the model is not there."""
        if self.state is not State.READY:
            what = f"instance '{self.spec.instance_name}' is {self.state.value}"
            raise ServeError(Code.UNAVAILABLE, f"{what}. {self.reason}".rstrip())
        self._open[job.number] = set(range(len(job.requests)))
        if self._inline:
            self._watching = True
            self._thread.run_here(job)
            self._watching = False
            self._take()
        else:
            self._last_handed = (job.number, job.cancelled)
            self._thread.run(job)

    def poll(self) -> None:
        """Take in what the model has said; if that is nothing, wait a moment for it to say something.

        The thread is let run meanwhile, and wakes this one: sooner than the event loop would be woken.
        """
        if self._inline:
            return
        self._watching = True
        if not self._said:
            # It may have been rung for what has been taken in already: then this wait is over at once.
            self._bell.acquire(timeout=_MOMENT_SECONDS)
        self._watching = False
        self._take()

    def cancel(self, batch: int, indexes: Sequence[int]) -> None:
        """Let the model know that nobody waits for these requests any more."""
        number, cancelled = self._last_handed
        if number == batch:  # perhaps not taken up yet
            cancelled.extend(indexes)
        self._link.cancel(batch, indexes)

    async def is_ready(self) -> bool:
        """Whether the model says that it is ready; one that executes is: it cannot be asked before it is done."""
        if self.state is not State.READY or self._open:
            return self.state is State.READY
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._thread.ask_ready(lambda said: self._soon(_settle, answer, said))
        try:
            said = await asyncio.wait_for(answer, self._patience.ready_seconds)
        except asyncio.TimeoutError:
            # A batch came in between: it is at work, and nothing is wrong with that.
            return bool(self._open) and self.worker is not None
        if "reason" in said:
            logger.warning("%s: %s", self.spec.instance_name, said["reason"])
        return bool(said["ready"])

    async def close(self) -> None:
        """Have the model finalised, and its thread ended; one that does not end in time is left behind."""
        was_ready = self.state is State.READY
        self._enter(State.CLOSED, "the model is being unloaded")
        if not was_ready:
            return
        gone = ServeError(Code.UNAVAILABLE, f"model '{self.spec.model_name}' was unloaded before it answered")
        waiting, self._open = self._open, {}
        self._deliver([Reply(batch, index, {}, gone) for batch, open_ in waiting.items() for index in sorted(open_)])
        self._link.close()
        self._thread.end()
        seconds = self._patience.finalize_seconds
        try:
            await asyncio.wait_for(asyncio.shield(self._ended), seconds)
        except asyncio.TimeoutError:
            logger.error(
                "%s: the model has not returned within %g seconds; its thread stays until the server ends",
                self.spec.instance_name,
                seconds,
            )
        self._hear_no_more()

    # ------------------------------------------------------------------ answers to what the model asks

    def answer_infer(
        self,
        call: int,
        outputs: Arrays | None = None,
        *,
        error: ServeError | None = None,
        parameters: dict[str, Any] | None = None,
        final: bool = True,
    ) -> None:
        """Answer an InferCall once; ``outputs`` None without ``error`` says only that it was the last time."""
        header: dict[str, Any] = {"final": final}
        if parameters:
            header["parameters"] = parameters
        if error is not None:
            header["error"] = [CODES.index(error.code), error.message]
        elif outputs is not None:
            header["outputs"] = [(name, *worded(name, array)) for name, array in outputs.items()]
        self._link.hand_over(call, header)

    def answer_call(self, call: int, *, error: str | None = None, **details: Any) -> None:
        """Answer a ModelCall."""
        self._link.hand_over(call, details if error is None else {"error": error})

    # ------------------------------------------------------------------ what the model says

    def _post(self, events: Sequence[Event]) -> None:
        self._said.put(events)
        # Whoever finds the loop watching, or it announced, is sure to be heard: both are unset before it looks.
        if self._watching:
            with contextlib.suppress(RuntimeError):  # it rings already
                self._bell.release()
        elif not self._announced:
            self._announced = True
            self._soon(self._hear)

    def _hear(self) -> None:
        if not self._going_on:  # else it is heard in its turn; announcing more meanwhile would be in vain
            self._take()

    def _go_on(self) -> None:
        self._going_on = False
        self._take()

    def _take(self) -> None:
        """Hear a part of what was said; the rest only after whatever else the loop has to do."""
        self._announced = False
        events: list[Event] = []
        for event in self._said.take():
            if isinstance(event, MetricChange):
                self._metrics.apply(event)
            elif self.state is State.READY and self._is_due(event):
                events.append(event)
        if self._said and not self._going_on:
            self._going_on = True
            self._loop.call_soon(self._go_on, context=self._context)
        if events:
            self._deliver(events)

    def _is_due(self, event: Event) -> bool:
        """Whether nothing was said before that makes ``event`` one answer too many."""
        if isinstance(event, Answers):
            return len(self._open.pop(event.batch, ())) == len(event.rows)
        if isinstance(event, Reply):
            waiting = self._open.get(event.batch, set())
            if event.index not in waiting:
                return False
            if event.final:
                waiting.discard(event.index)
                if not waiting:
                    del self._open[event.batch]
        return True

    def _soon(self, call: Callable[..., None], *arguments: object) -> None:
        """Have ``call`` called on the loop, outside of the model's context."""
        try:
            self._loop.call_soon_threadsafe(call, *arguments, context=self._context)
        except RuntimeError:
            return  # the loop is closed: nobody is left to hear

    # ------------------------------------------------------------------ small things

    async def _started(self) -> dict[str, Any]:
        started: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        try:
            self._thread.start(
                "initialize",
                lambda said: self._soon(_settle, started, said),
                lambda: self._soon(_settle, self._ended, {}),
            )
        except RuntimeError as error:
            raise ServeError(Code.UNAVAILABLE, f"no thread for '{self.spec.instance_name}': {error}") from error
        seconds = self._patience.start_seconds
        try:
            return await asyncio.wait_for(started, seconds)
        except asyncio.TimeoutError:
            what = f"'initialize' did not return within {seconds:g} seconds; its thread stays until it does"
            raise ServeError(Code.INTERNAL, f"'{self.spec.instance_name}': {what}") from None

    def _check_inline(self) -> None:
        kind = (
            "is decoupled" if self.spec.decoupled else "has an asynchronous 'execute'" if self._thread.is_async else ""
        )
        if kind:
            raise ServeError(
                Code.UNSUPPORTED,
                f"model '{self.spec.model_name}' {kind}, so the event loop cannot execute it: use LANE 'thread'",
            )
        self._link.refusal = "a model with LANE 'inline' cannot ask the server, which waits for it: use LANE 'thread'"

    def _hear_no_more(self) -> None:
        self._link.is_abandoned = True
        self._said.close()
        self._metrics.close()

    def _enter(self, state: State, reason: str) -> None:
        if self.state is not State.CLOSED:
            self.state, self.reason, self.since = state, reason, time.time()
            self._changed(state)


def _settle(future: asyncio.Future[dict[str, Any]], said: dict[str, Any]) -> None:
    if not future.done():
        future.set_result(said)
