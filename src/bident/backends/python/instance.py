"""A Python model as the engine sees it: batches to the worker, what comes back to whom it belongs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns

from bident.backends.base import Answers, Arrays, RequestInstance, Server
from bident.backends.python import messages
from bident.backends.python.calls import ModelCalls
from bident.backends.python.host import WorkerSpec
from bident.backends.python.messages import BatchDone, Died, Event, Reply
from bident.backends.python.metrics import CustomMetrics
from bident.backends.python.supervisor import Patience, State, Supervisor
from bident.observe.clock import utc
from bident.wire.infer import InferRequest

_SEQUENCE_START, _SEQUENCE_END = 1, 2


class _Sent:
    """A batch that the worker has: who is told, how many requests await their last answer, whether it is executing."""

    __slots__ = ("answers", "executing", "number", "waiting")

    def __init__(self, number: int, answers: Answers, waiting: int) -> None:
        self.number = number
        self.answers = answers
        self.waiting = waiting
        self.executing = True


class PythonInstance(RequestInstance):
    """One supervised worker process."""

    def __init__(self, spec: WorkerSpec, metrics: CustomMetrics, patience: Patience, *, batching: bool) -> None:
        """``batching``: whether the inputs of a batch come joined, as those of a batching model do."""
        self._supervisor = Supervisor(spec, self._take, self._enter, metrics, patience)
        self._batching = batching
        self._sent: dict[int, _Sent] = {}
        self._last_batch = 0
        self._calls: ModelCalls
        self._changed: Callable[[], None]

    async def start(self, server: Server, changed: Callable[[], None]) -> None:
        """Start the worker and have the model initialised, however long that takes. Raises ServeError."""
        self._calls = ModelCalls(server, self._supervisor)
        self._changed = changed
        await self._supervisor.start()

    def execute_requests(self, requests: Sequence[InferRequest], inputs: Arrays, answers: Answers) -> None:
        """Send a batch to the worker in one message."""
        self._last_batch = number = self._last_batch + 1
        if not self._batching:
            self._supervisor.send(messages.Batch(number, [_told(request, inputs) for request in requests]))
        elif not _are_plain(requests) or not self._supervisor.send_plain(
            number, len(requests), requests[0].batch_size, inputs
        ):
            self._supervisor.send(messages.Batch(number, [_told(request) for request in requests], inputs))
        self._sent[number] = _Sent(number, answers, len(requests))

    def cancel(self, answers: Answers, indexes: Sequence[int]) -> None:
        """Have ``is_cancelled`` of these requests say so."""
        for sent in self._sent.values():
            if sent.answers is answers:
                self._supervisor.cancel(sent.number, indexes)

    async def is_ready(self) -> bool:
        """Whether the worker is there and its model's ``is_ready`` says so too."""
        return await self._supervisor.is_ready()

    async def close(self) -> None:
        """Have the model finalised, and end the worker."""
        await self._supervisor.close()

    # From the worker

    def _take(self, events: list[Event]) -> None:
        # The clocks first: whoever is answered has his figures taken.
        for event in events:
            if isinstance(event, BatchDone):
                self._executed(self._sent[event.batch], event.start_ns, event.end_ns)
            elif isinstance(event, Died):
                now = monotonic_ns()
                for sent in list(self._sent.values()):
                    self._executed(sent, now, now)
        for event in events:
            if isinstance(event, messages.Answers):
                sent = self._sent[event.batch]
                self._note_final(sent, sent.waiting)
                sent.answers.answered(event.columns, event.rows)
            elif isinstance(event, Reply):
                self._reply(event)
            else:
                self._calls.take(event)

    def _reply(self, reply: Reply) -> None:
        sent = self._sent[reply.batch]
        if reply.final:
            self._note_final(sent, 1)
        sent.answers.replied(
            reply.index, reply.outputs, error=reply.error, parameters=reply.parameters, final=reply.final
        )

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
        supervisor = self._supervisor
        self.is_available = state is State.READY
        self.is_lost = state in (State.FAILED, State.CLOSED)
        since = f"'{supervisor.spec.instance_name}' is {state.value} since {utc(supervisor.since)}"
        self.reason = f"{since}. {supervisor.reason}".rstrip()
        self._changed()


def _are_plain(requests: Sequence[InferRequest]) -> bool:
    """Whether the requests say nothing but their inputs, and have as many rows."""
    rows = requests[0].batch_size
    for request in requests:
        if request.batch_size != rows or request.id or request.outputs is not None or request.parameters is not None:
            return False
        if request.timeout_us or request.priority or request.sequence_id or request.sequence_start:
            return False
    return True


def _told(request: InferRequest, inputs: Arrays | None = None) -> messages.Request:
    """What the worker is told of a request; its inputs too, where they are not told for the whole batch."""
    flags = 0
    if request.sequence_start:
        flags |= _SEQUENCE_START
    if request.sequence_end:
        flags |= _SEQUENCE_END
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
