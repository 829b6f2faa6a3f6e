"""A Python model as the engine sees it: batches to where it runs, what comes back to whom it belongs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Protocol

from bident.backends.base import Answers, Arrays, RequestInstance, Server
from bident.backends.python import messages
from bident.backends.python.calls import ModelCalls, ModelHost
from bident.backends.python.messages import SEQUENCE_END, SEQUENCE_START, BatchDone, Died, Event, Reply
from bident.backends.python.metrics import CustomMetrics
from bident.backends.python.spec import WorkerSpec
from bident.backends.python.supervisor import Patience, State, Supervisor
from bident.errors import Code, ServeError
from bident.observe.clock import utc
from bident.wire.infer import InferRequest


class _Sent:
    """A batch that the host has: who is told, how many requests await their last answer, whether it is executing."""

    __slots__ = ("answers", "executing", "number", "waiting")

    def __init__(self, number: int, answers: Answers, waiting: int) -> None:
        self.number = number
        self.answers = answers
        self.waiting = waiting
        self.executing = True


class Host(ModelHost, Protocol):
    """Where a model runs: a supervised process, or a thread. Lives on the event loop."""

    spec: WorkerSpec
    state: State
    since: float
    """When ``state`` was entered, as a Unix time."""
    reason: str
    """Why it is not ready."""

    async def start(self) -> None:
        """Have the model initialised, however long that takes. Raises ServeError."""

    def poll(self) -> None:
        """Take in now what has come from the model."""

    def cancel(self, batch: int, indexes: Sequence[int]) -> None:
        """Have ``is_cancelled`` of these requests of a batch say so."""

    async def is_ready(self) -> bool:
        """Whether the model is there and its ``is_ready`` says so too."""

    async def close(self) -> None:
        """Have the model finalised, and end it."""


class HostedInstance(RequestInstance):
    """A model that runs somewhere: what is said of its batches goes to whom they belong."""

    _host: Host

    def __init__(self) -> None:
        self._sent: dict[int, _Sent] = {}
        self._last_batch = 0
        self._calls: ModelCalls
        self._changed: Callable[[], None]

    async def start(self, server: Server, changed: Callable[[], None]) -> None:
        """Have the model initialised, however long that takes. Raises ServeError."""
        self._calls = ModelCalls(server, self._host, self._host.spec.instance_name)
        self._changed = changed
        await self._host.start()

    def execute_requests(
        self, requests: Sequence[InferRequest], inputs: Arrays | list[Arrays], answers: Answers
    ) -> None:
        """Hand a batch over."""
        self._last_batch = number = self._last_batch + 1
        self._sent[number] = _Sent(number, answers, len(requests))
        try:
            self._send(number, requests, inputs)
        except ServeError:
            del self._sent[number]
            raise

    @abstractmethod
    def _send(self, number: int, requests: Sequence[InferRequest], inputs: Arrays | list[Arrays]) -> None:
        """Have the host execute batch ``number``, which may be answered before this returns.

        Raises ServeError if it cannot be taken.
        """

    def poll(self) -> None:
        """Take in what the host has to say."""
        self._host.poll()

    def cancel(self, answers: Answers, indexes: Sequence[int]) -> None:
        """Have ``is_cancelled`` of these requests say so."""
        for sent in self._sent.values():
            if sent.answers is answers:
                self._host.cancel(sent.number, indexes)

    async def is_ready(self) -> bool:
        """Whether the model is there and its ``is_ready`` says so too."""
        return await self._host.is_ready()

    async def close(self) -> None:
        """Have the model finalised, and end it."""
        await self._host.close()

    # From the host

    def _take(self, events: list[Event]) -> None:
        """Take in all ``events``. Raises what the last one raises that fails."""
        wrong: Exception | None = None
        # The clocks first: whoever is answered has his figures taken.
        for take in (self._take_clock, self._take_answer):
            for event in events:
                try:
                    take(event)
                except Exception as error:  # noqa: BLE001 - the others are not to suffer for it
                    wrong = error
        if wrong is not None:
            raise wrong

    def _take_clock(self, event: Event) -> None:
        if isinstance(event, BatchDone):
            self._executed(self._sent[event.batch], event.start_ns, event.end_ns)
        elif isinstance(event, Died):
            now = monotonic_ns()
            for sent in list(self._sent.values()):
                self._executed(sent, now, now)

    def _take_answer(self, event: Event) -> None:
        if isinstance(event, messages.Answers):
            sent = self._sent[event.batch]
            self._note_final(sent, sent.waiting)
            try:
                sent.answers.answered(event.columns, event.rows)
            except Exception as error:
                for index in range(len(event.rows)):
                    sent.answers.replied(index, {}, error=self._senseless(error))
                raise
        elif isinstance(event, Reply):
            self._reply(event)
        else:
            self._calls.take(event)

    def _reply(self, reply: Reply) -> None:
        sent = self._sent[reply.batch]
        if reply.final:
            self._note_final(sent, 1)
        if reply.rescheduled:
            sent.answers.rescheduled(reply.index)
            return
        told = sent.answers.replied
        try:
            told(reply.index, reply.outputs, error=reply.error, parameters=reply.parameters, final=reply.final)
        except Exception as wrong:
            if reply.final:
                told(reply.index, {}, error=self._senseless(wrong))
            raise

    def _senseless(self, error: Exception) -> ServeError:
        """What a request is answered whose answer cannot be taken."""
        what = f"the answer of '{self._host.spec.instance_name}' makes no sense"
        return ServeError(Code.INTERNAL, f"{what} ({type(error).__name__}: {error})")

    def _executed(self, sent: _Sent, start_ns: int, end_ns: int) -> None:
        if sent.executing:
            sent.executing = False
            self._forget_if_over(sent)
            sent.answers.executed(start_ns, end_ns)

    def _note_final(self, sent: _Sent, count: int) -> None:
        sent.waiting -= count
        self._forget_if_over(sent)

    def _forget_if_over(self, sent: _Sent) -> None:
        if not sent.waiting and not sent.executing:
            del self._sent[sent.number]

    def _enter(self, state: State) -> None:
        host = self._host
        self.is_available = state is State.READY
        self.is_lost = state in (State.FAILED, State.CLOSED)
        since = f"'{host.spec.instance_name}' is {state.value} since {utc(host.since)}"
        self.reason = f"{since}. {host.reason}".rstrip()
        self._changed()


class PythonInstance(HostedInstance):
    """One supervised worker process."""

    _host: Supervisor

    def __init__(self, spec: WorkerSpec, metrics: CustomMetrics, patience: Patience, *, batching: bool) -> None:
        """``batching``: whether the inputs of a batch come joined, as those of a batching model do."""
        super().__init__()
        self._host = Supervisor(spec, self._take, self._enter, metrics, patience)
        self._batching = batching

    def _send(self, number: int, requests: Sequence[InferRequest], inputs: Arrays | list[Arrays]) -> None:
        """Send a batch to the worker in one message."""
        host = self._host
        if isinstance(inputs, list):
            apart = zip(requests, inputs, strict=True)
            host.send(messages.Batch(number, [self._told(request, own) for request, own in apart]))
        elif not self._batching:
            host.send(messages.Batch(number, [self._told(request, inputs) for request in requests]))
        elif not _are_plain(requests) or not host.send_plain(number, len(requests), requests[0].batch_size, inputs):
            host.send(messages.Batch(number, [self._told(request) for request in requests], inputs))

    def _told(self, request: InferRequest, inputs: Arrays | None = None) -> messages.Request:
        """What the worker is told of a request; its inputs too, where they are not told for the whole batch."""
        told = _told(request, inputs)
        trace = request.trace
        if trace is not None:
            told.trace, told.trace_id = trace.context, trace.id
            self._calls.traces[trace.id] = trace
        return told


def _are_plain(requests: Sequence[InferRequest]) -> bool:
    """Whether the requests say nothing but their inputs, and have as many rows."""
    rows = requests[0].batch_size
    for request in requests:
        if request.batch_size != rows or request.id or request.outputs is not None or request.parameters is not None:
            return False
        if request.timeout_us or request.priority or request.trace:
            return False
        if request.sequence_id or request.sequence_start or request.sequence_end:
            return False
    return True


def _told(request: InferRequest, inputs: Arrays | None) -> messages.Request:
    flags = 0
    if request.sequence_start:
        flags |= SEQUENCE_START
    if request.sequence_end:
        flags |= SEQUENCE_END
    return messages.Request(
        request.id,
        inputs,
        request.batch_size,
        request.outputs,
        request.parameters,
        request.sequence_id,
        flags,
        request.timeout_us,
        request.priority,
    )
