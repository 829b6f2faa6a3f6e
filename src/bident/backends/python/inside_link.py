"""What a worker's channel is for a model inside the server: the same words, with nothing to cross.

Whatever the model says becomes an event for the event loop; arrays go along as they are. Metrics and log
lines are dealt with at once, in the thread they come from.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

from bident.backends.python.inside_bundle import Bundle
from bident.backends.python.messages import (
    Answers,
    BatchDone,
    Event,
    InferCall,
    InferDropped,
    MetricCall,
    MetricChange,
    ModelCall,
    Reply,
    Request,
)
from bident.backends.python.metrics import WorkerMetrics
from bident.backends.python.outgoing import CODES
from bident.backends.python.worker.bident_worker.errors import TritonModelException
from bident.backends.python.worker.bident_worker.frames import Frame, Kind
from bident.backends.python.worker.bident_worker.link import Waiter
from bident.backends.python.worker.bident_worker.sender import Batch
from bident.errors import Code, ServeError

logger = logging.getLogger("bident.python")

_LEVELS = [logging.INFO, logging.WARNING, logging.ERROR, logging.DEBUG]
_NOT_READY = "Server not ready: the model is being initialised or finalised"


class _Inbox(SimpleQueue[Frame]):
    """Answers, in the words of the deque that a worker has for them; ``popleft`` waits for one."""

    append = SimpleQueue.put
    popleft = SimpleQueue.get


class InsideWaiter(Waiter):
    """A place for the answers to one call; any thread may wait for them."""

    __slots__ = ("refused",)

    def __init__(self, notify: Callable[[Frame], None] | None = None) -> None:
        super().__init__(notify)
        self.answers: Any = _Inbox()
        self.refused: Any = [CODES.index(Code.UNAVAILABLE), _NOT_READY]
        """The error that is the answer when nobody will give one."""


class _NoBlocks:
    """There is no shared memory."""

    unused = 0


class InsideLink:
    """Takes what the model says, in any thread; gives it what it has asked for."""

    parcel = Bundle
    waiter = InsideWaiter
    blocks = _NoBlocks()

    def __init__(
        self,
        label: str,
        post: Callable[[Sequence[Event]], None],
        metrics: WorkerMetrics,
        wait_for_room: Callable[[], None],
    ) -> None:
        """``post`` brings events to the event loop, from any thread and out of destructors.

        ``wait_for_room`` returns once the loop has heard enough of them to be told more.
        """
        self._label = label
        self._post = post
        self._metrics = metrics
        self._wait_for_room = wait_for_room
        self._numbers = itertools.count(1)
        self._waiters: dict[int, InsideWaiter] = {}
        self.batches: dict[int, Batch] = {}
        """Batches with requests that await an answer."""
        self.loop_thread = 0
        """The thread of the event loop, which must never wait for itself."""
        self.before_answering: Callable[[], None] = _nothing
        """What has to be done before anybody hears of what a model has done."""
        self.is_open = False
        """Whether the model may ask the server."""
        self.refusal = _NOT_READY
        """What it is told if it may not."""
        self.is_abandoned = False
        """Whether what the model says is heard no more."""

    # What the model's side says

    def send(self, kind: int, header: dict[str, Any], parcel: Bundle | None = None) -> None:
        """Say one thing. A model that says more than the event loop can hear waits for it."""
        if kind in (Kind.RESPONSES, Kind.INFER):
            self._let_loop_catch_up()
        self._say(kind, header, parcel)

    def _say(self, kind: int, header: dict[str, Any], parcel: Bundle | None = None) -> None:
        if kind == Kind.RESPONSES:
            self.before_answering()
            if parcel is not None:
                parcel.settle()
            self._post(_responses(header))
        elif kind == Kind.LOG:
            file, line = header["place"]
            place = f" ({file}:{line})" if file else ""
            logger.log(_LEVELS[header["level"]], "%s: %s%s", self._label, header["message"], place)
        elif kind == Kind.METRIC:
            self._metrics.apply(_metric_change(header))
        elif kind == Kind.INFER:
            if parcel is not None:
                parcel.settle()
            self._infer(header)
        elif kind == Kind.DROP:
            self._post([InferDropped(header["call"])])

    def send_plain(self, kinds: Any, columns: Sequence[Any], said: tuple[int, int, int, int, int]) -> bool:
        """Answer a whole batch: its number, requests, rows of each, begin and end of ``execute``.

        False for arrays that may be spared a copy once the requests have been let go of.
        """
        batch, count, rows, start, end = said
        bundle = Bundle()
        described = [bundle.add(name, word, column, ()) for column, (name, word, _) in zip(columns, kinds, strict=True)]
        if bundle.is_large:
            return False
        self.before_answering()
        bundle.settle()
        self._post([Answers(batch, {d[0]: d[2] for d in described}, [rows] * count), BatchDone(batch, start, end)])
        return True

    def send_aside(self, kind: int, header: dict[str, Any]) -> None:
        """Say one thing out of a destructor, which may run in the middle of anything: no locks here."""
        if kind == Kind.METRIC:
            self._post([_metric_change(header)])
        else:
            self._say(kind, header)

    def ask(self, what: str, parcel: Bundle | None = None, **details: Any) -> Frame:
        """Ask the server for ``what``, and wait for the answer."""
        if what in ("metric_family", "metric", "metric_value"):
            self._let_loop_catch_up()  # with the metrics that were let go of
            refused = {"error": "the model has been unloaded"}
            said = refused if self.is_abandoned else self._metrics.answer(MetricCall(0, what, details))
            return Frame(Kind.ANSWER, said, bytearray(), [])
        waiter = InsideWaiter()
        waiter.refused = _NOT_READY
        call = self.open_call(waiter)
        try:
            if parcel is not None:
                parcel.settle()
            details["files"] = {name: array.tobytes() for name, _, array in details.get("files", ())}
            if self.is_open:
                self._post([ModelCall(call, what, **details)])
            else:
                self.hand_over(call, {"error": self.refusal})
            return self.next_answer(waiter)
        finally:
            self.close_call(call)

    def open_call(self, waiter: InsideWaiter) -> int:
        """A number for a call whose answers go to ``waiter``."""
        call = next(self._numbers)
        self._waiters[call] = waiter
        return call

    def close_call(self, call: int) -> None:
        """No more answers are wanted."""
        self._waiters.pop(call, None)

    forget_call = close_call

    def next_answer(self, waiter: InsideWaiter) -> Frame:
        """Wait for the next answer."""
        if threading.get_ident() == self.loop_thread and waiter.answers.empty():
            raise TritonModelException("the server's event loop cannot wait: ask from the model's own threads")
        frame: Frame = waiter.answers.popleft()
        return frame

    def arrays(self, frame: Frame, descriptions: Sequence[Any]) -> list[Any]:
        """The arrays of an answer, for the model to keep and to write to."""
        return [np.array(description[2]) for description in descriptions]

    def poll(self) -> None:
        """Nothing waits anywhere: cancellations have been noted already."""

    def read_in_background(self) -> None:
        """Answers are brought by the event loop."""

    read_no_longer = read_in_background

    # What the server's side says

    def hand_over(self, call: int, header: dict[str, Any]) -> None:
        """Bring an answer to whoever waits for it."""
        waiter = self._waiters.get(call)
        if waiter is None:
            return
        frame = Frame(Kind.ANSWER, header, bytearray(), [])
        if waiter.notify is not None:
            waiter.notify(frame)
        else:
            waiter.answers.append(frame)

    def cancel(self, batch: int, indexes: Sequence[int]) -> None:
        """Nobody waits for these requests any more."""
        found = self.batches.get(batch)
        if found is not None:
            found.cancelled.update(indexes)

    def fail(self, batch: int, count: int, error: BaseException) -> None:
        """What was to execute a batch has failed itself: answer whatever of it has not been answered."""
        self.batches.pop(batch, None)
        told = ServeError(Code.INTERNAL, f"'{self._label}' could not execute its batch: {error!r}")
        now = time.monotonic_ns()
        self._post([*(Reply(batch, index, {}, told) for index in range(count)), BatchDone(batch, now, now)])

    def close(self) -> None:
        """The model may ask no more; whoever waits for an answer gets an error."""
        self.is_open = False
        for call, waiter in list(self._waiters.items()):
            self.hand_over(call, {"error": waiter.refused, "final": True})

    def _let_loop_catch_up(self) -> None:
        if threading.get_ident() != self.loop_thread:
            self._wait_for_room()

    def _infer(self, header: dict[str, Any]) -> None:
        call = header["call"]
        if not self.is_open:
            self.hand_over(call, {"error": [CODES.index(Code.UNAVAILABLE), self.refusal], "final": True})
            return
        request = Request(
            id=header["id"],
            inputs={name: array for name, _, array in header["inputs"]},
            outputs=header["outputs"],
            parameters=header["parameters"] or None,
            correlation_id=header["correlation_id"],
            flags=header["flags"],
            timeout_us=header["timeout"],
            trace=header["trace"],
            trace_id=header["trace_id"],
        )
        self._post([InferCall(call, header["model"], header["version"], header["decoupled"], request)])


def _nothing() -> None:
    """By default nothing has to be done."""


def _responses(header: dict[str, Any]) -> list[Event]:
    batch = header["batch"]
    events: list[Event] = []
    if "columns" in header:
        rows = header["rows"]
        rows = [rows] * header["count"] if isinstance(rows, int) else rows
        events.append(Answers(batch, {name: array for name, _, array in header["columns"]}, rows))
    for said in header.get("replies", ()):
        outputs = {name: array for name, _, array in said.get("outputs", ())}
        error = ServeError(CODES[said["error"][0]], said["error"][1]) if "error" in said else None
        rescheduled = said.get("reschedule", False)
        events.append(Reply(batch, said["index"], outputs, error, said.get("parameters"), said["final"], rescheduled))
    if "done" in header:
        events.append(BatchDone(batch, *header["done"]))
    return events


def _metric_change(header: dict[str, Any]) -> MetricChange:
    return MetricChange(header["id"], header["do"], float(header.get("value", 0)))
