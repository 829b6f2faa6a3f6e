"""Keeps one instance's worker alive, on the event loop: start, hand over, restart, stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeVar

from bident.backends.python.host import Worker
from bident.backends.python.messages import (
    Arrays,
    Batch,
    BatchDone,
    Died,
    Event,
    LogLine,
    MetricCall,
    MetricChange,
    Readiness,
    Reply,
)
from bident.backends.python.metrics import CustomMetrics, WorkerMetrics
from bident.backends.python.spec import WorkerSpec
from bident.errors import Code, ServeError

logger = logging.getLogger("bident.python")

_T = TypeVar("_T")

_CURE = "restart the server, or load the model again where --model-control-mode=explicit"

# Of our own: models that take minutes to initialise must not use up the threads of the loop.
_blocking = ThreadPoolExecutor(max_workers=512, thread_name_prefix="bident python")


class State(Enum):
    """What an instance is doing."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting to be restarted"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True)
class Patience:
    """How long to wait for a worker, and how often to start it anew.

    The first restart comes at once, the next after ``backoff_seconds``, doubled each time up to
    ``backoff_limit_seconds``. A worker that has executed a batch or lived ``proven_seconds`` starts the
    count anew; after ``restart_limit`` restarts in a row the instance is given up.
    """

    start_seconds: float = 600.0
    finalize_seconds: float = 30.0
    ready_seconds: float = 5.0
    backoff_seconds: float = 0.5
    backoff_limit_seconds: float = 30.0
    restart_limit: int = 10
    proven_seconds: float = 60.0


class Supervisor:
    """One instance: a worker, and its successor when it dies.

    ``deliver`` gets the events of the worker, but for logs and metrics, which are dealt with here, on
    the loop. ``changed`` is called on the loop whenever ``state`` has changed.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        deliver: Callable[[list[Event]], None],
        changed: Callable[[State], None],
        metrics: CustomMetrics,
        patience: Patience | None = None,
    ) -> None:
        self.spec = spec
        self.state = State.STARTING
        self.since = time.time()
        """When ``state`` was entered, as a Unix time."""
        self.reason = ""
        """Why the instance is not ready."""
        self.restarts = 0
        self._deliver = deliver
        self._changed = changed
        self._all_metrics = metrics
        self._metrics: WorkerMetrics = metrics.worker()
        self._patience = patience or Patience()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._writing = False
        self._in_a_row = 0
        self._ready_since = 0.0
        self._restarting: asyncio.Task[None] | None = None
        self._asked: dict[int, asyncio.Future[Readiness]] = {}
        self._last_token = 0

    @property
    def worker(self) -> Worker | None:
        """The present worker; None while there is none."""
        return self._worker

    async def start(self) -> None:
        """Start the worker and have the model initialised. Raises ServeError."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._launch()
        except ServeError as error:
            self._enter(State.FAILED, error.message)
            raise

    def send(self, batch: Batch) -> None:
        """Have ``batch`` executed. Raises ServeError when the worker is not there or cannot take it."""
        if self.state is not State.READY or self._worker is None:
            raise ServeError(Code.UNAVAILABLE, self._why_not())
        self._worker.send(batch)
        self._watch_writing()

    def send_plain(self, number: int, count: int, rows: int, columns: Arrays) -> bool:
        """Have a batch executed as ``Worker.send_plain`` does; False if it has to go through ``send``."""
        if self.state is not State.READY or self._worker is None:
            raise ServeError(Code.UNAVAILABLE, self._why_not())
        sent = self._worker.send_plain(number, count, rows, columns)
        if self._worker.wants_write:
            self._watch_writing()
        return sent

    def cancel(self, batch: int, indexes: Sequence[int]) -> None:
        """Let the model know that nobody waits for these requests any more."""
        if self._worker is not None:
            self._worker.cancel(batch, indexes)
            self._watch_writing()

    def poll(self) -> None:
        """Take in what the worker has sent, without waiting for the loop to find it."""
        self._receive()

    def answered(self) -> None:
        """To be called after using ``worker`` directly: sees to what could not be sent at once."""
        self._watch_writing()

    async def is_ready(self) -> bool:
        """Whether the instance is ready, and its model's ``is_ready`` says so too.

        A worker that executes is ready: it cannot be asked before it is done.
        """
        worker = self._worker
        if self.state is not State.READY or worker is None:
            return False
        if worker.busy:
            return True
        self._last_token += 1
        token = self._last_token
        answer: asyncio.Future[Readiness] = asyncio.get_running_loop().create_future()
        self._asked[token] = answer
        try:
            worker.ask_ready(token)
            self._watch_writing()
            readiness = await asyncio.wait_for(answer, self._patience.ready_seconds)
        except (asyncio.TimeoutError, asyncio.CancelledError):
            # Not answered because a batch came in between: it is at work, and nothing is wrong with that.
            return worker.busy and self.state is State.READY
        finally:
            self._asked.pop(token, None)
        if readiness.reason:
            logger.warning("%s: %s", self.spec.instance_name, readiness.reason)
        return readiness.ready

    async def close(self) -> None:
        """Have the model finalised, and end the worker."""
        self._enter(State.CLOSED, "the model is being unloaded")
        if self._restarting is not None:
            self._restarting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._restarting
        worker = self._worker
        if worker is not None:
            self._detach(worker)
            self._deliver(worker.abandon(f"model '{self.spec.model_name}' was unloaded before it answered"))
            await _off_loop(worker.finalize, self._patience.finalize_seconds, partial(self._handle_aside, worker))
        self._metrics.close()

    # ------------------------------------------------------------------ the worker's life

    async def _launch(self) -> None:
        """A new worker, initialised. Raises ServeError; then no process is left."""
        loop = asyncio.get_running_loop()
        self._metrics = self._all_metrics.worker()
        worker = await _off_loop(Worker, self.spec)
        logger.info("%s: its worker is process %d", self.spec.instance_name, worker.pid)
        initialized = loop.run_in_executor(
            _blocking, worker.initialize, self._patience.start_seconds, partial(self._handle_aside, worker)
        )
        try:
            await asyncio.shield(initialized)
        except asyncio.CancelledError:
            # The thread that waits for the model notices the death, and only then the worker is closed.
            worker.kill("the model is being unloaded")
            with contextlib.suppress(ServeError, asyncio.CancelledError):
                await initialized
            await _off_loop(worker.close)
            raise
        except ServeError:
            self._metrics.close()
            raise
        self._worker = worker
        self._ready_since = time.monotonic()
        loop.add_reader(worker.fileno(), self._receive)
        self._watch_writing()
        self._enter(State.READY, "")

    def _receive(self) -> None:
        worker = self._worker
        if worker is not None:
            fileno = worker.fileno()
            self._hear(worker, fileno, worker.receive())

    def _hear(self, worker: Worker, fileno: int, heard: list[Event]) -> None:
        """Take in what a worker says. If that makes anything fail, the rest still counts, and the worker is ended."""
        events, wrong = self._handled(worker, heard)
        if events and isinstance(events[-1], Died):
            # Whoever answers its requests logs why.
            self._bury(fileno, events[-1], told=any(isinstance(event, Reply) and event.error for event in events))
        else:
            self._watch_writing()
        try:
            if events:
                self._deliver(events)
        except Exception as error:  # noqa: BLE001 - whatever it is
            wrong = error
        if wrong is not None:
            logger.debug("%s: what its worker said made this fail", self.spec.instance_name, exc_info=wrong)
            if self._worker is worker:
                self._hear(worker, fileno, worker.refute(wrong))

    def _handled(self, worker: Worker, heard: list[Event]) -> tuple[list[Event], Exception | None]:
        """Deal with what is none of the engine's business; returns the rest, and what went wrong."""
        events: list[Event] = []
        wrong: Exception | None = None
        for event in heard:
            try:
                if self._handle(worker, event):
                    continue
            except Exception as error:  # noqa: BLE001 - whatever it is
                wrong = error
                continue
            events.append(event)
            if isinstance(event, BatchDone):
                self._in_a_row = 0
        return events, wrong

    def _handle(self, worker: Worker, event: Event) -> bool:
        """Deal with ``event``, if it is none of the engine's business."""
        if isinstance(event, LogLine | MetricChange | MetricCall):
            self._handle_aside(worker, event)
        elif isinstance(event, Readiness):
            answer = self._asked.get(event.token)
            if answer is not None and not answer.done():
                answer.set_result(event)
        else:
            return False
        return True

    def _handle_aside(self, worker: Worker, event: Event) -> None:
        """What can be dealt with in any thread."""
        if isinstance(event, LogLine):
            place = f" ({event.file}:{event.line})" if event.file else ""
            logger.log(event.level, "%s: %s%s", self.spec.instance_name, event.message, place)
        elif isinstance(event, MetricChange):
            self._metrics.apply(event)
        elif isinstance(event, MetricCall):
            worker.answer_call(event.call, **self._metrics.answer(event))

    def _bury(self, fileno: int, died: Died, *, told: bool) -> None:
        assert self._loop is not None
        self._loop.remove_reader(fileno)
        self._loop.remove_writer(fileno)
        self._writing = False
        self._worker = None
        self._metrics.close()
        for answer in self._asked.values():
            answer.cancel()
        if not told:
            logger.error("%s", died.reason)
        if self.state is State.CLOSED:
            return
        if time.monotonic() - self._ready_since >= self._patience.proven_seconds:
            self._in_a_row = 0
        self._enter(State.WAITING, died.reason)
        self._restarting = self._loop.create_task(self._restart())

    async def _restart(self) -> None:
        patience = self._patience
        while self._in_a_row < patience.restart_limit:
            delay = patience.backoff_seconds * 2 ** (self._in_a_row - 1) if self._in_a_row else 0.0
            self._in_a_row += 1
            await asyncio.sleep(min(delay, patience.backoff_limit_seconds))
            logger.info("%s: starting a new worker (%d in a row)", self.spec.instance_name, self._in_a_row)
            self.restarts += 1
            self._enter(State.STARTING, self.reason)
            try:
                await self._launch()
                return
            except ServeError as error:
                logger.error("%s: %s", self.spec.instance_name, error.message)
                self._enter(State.WAITING, error.message)
        in_vain = f"It was started {self._in_a_row} times in vain: {_CURE}."
        self._enter(State.FAILED, f"{in_vain} {self.reason}")

    # ------------------------------------------------------------------ small things

    def _watch_writing(self) -> None:
        worker, loop = self._worker, self._loop
        if worker is None or loop is None or worker.wants_write == self._writing:
            return
        self._writing = worker.wants_write
        if self._writing:
            loop.add_writer(worker.fileno(), self._flush)
        else:
            loop.remove_writer(worker.fileno())

    def _flush(self) -> None:
        if self._worker is not None:
            self._worker.flush()
            self._watch_writing()

    def _detach(self, worker: Worker) -> None:
        if self._loop is not None and worker.alive:
            self._loop.remove_reader(worker.fileno())
            self._loop.remove_writer(worker.fileno())
        self._worker = None

    def _enter(self, state: State, reason: str) -> None:
        if self.state is State.CLOSED:
            return
        self.state, self.reason, self.since = state, reason, time.time()
        self._changed(state)

    def _why_not(self) -> str:
        word = {State.FAILED: "has failed", State.CLOSED: "is closed"}.get(self.state, "is being restarted")
        return f"instance '{self.spec.instance_name}' {word}. {self.reason}".rstrip()


async def _off_loop(call: Callable[..., _T], *arguments: object) -> _T:
    return await asyncio.get_running_loop().run_in_executor(_blocking, call, *arguments)
