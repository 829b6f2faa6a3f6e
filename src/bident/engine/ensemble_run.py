"""One request to an ensemble on its way through the steps.

Tensors flow: a step runs as soon as all it reads is there, side by side with others, as a request
like any other to its model. What a decoupled step answers flows on answer by answer: each begins a
wave of its own, in which the steps behind it run once more.

Nothing holds a decoupled step back while those behind it are slow: its answers wait here, beyond
``max_inflight_requests`` of them, or in the queues of the models behind. When more than ``MOST_WAITING``
requests to steps wait or run, or more than ``MOST_WAITING_BYTES`` of tensors, and yet another answer
comes, the request fails and the steps are cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from time import monotonic_ns
from typing import Any, NamedTuple, Protocol, TypeAlias

from numpy.typing import NDArray

from bident.engine.batch import failure
from bident.engine.calls import Models
from bident.engine.ensemble_members import Cast, Member
from bident.engine.ensemble_plan import Plan, fitted
from bident.engine.servable import Servable
from bident.errors import Code, ServeError
from bident.wire.datatypes import DataType
from bident.wire.infer import InferInput, InferRequest, InferResponse, Outcome, Spent

logger = logging.getLogger("bident.engine")

_ANSWERED = Outcome.ANSWERED

MOST_WAITING = 65_536
MOST_WAITING_BYTES = 1 << 30

SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")
"""The parameters by which a model says which sequence its answer belongs to."""

Sequence: TypeAlias = tuple[int | str, bool, bool]


class Flowing(NamedTuple):
    """A tensor between two steps.

    ``rows`` is the batch size of whoever made it, 0 if that does not batch. ``parameters`` are those
    of the response it came in, ``sequence`` the id, start and end of the sequence it belongs to.
    """

    datatype: DataType
    shape: tuple[int, ...]
    elements: int
    data: list[Any] | NDArray[Any]
    rows: int
    parameters: dict[str, Any] | None = None
    sequence: Sequence | None = None


class Wave:
    """The tensors that belong together: those of the request, or of one answer of a decoupled step."""

    __slots__ = ("missing", "size", "tensors", "unset", "uses")

    def __init__(self, plan: Plan) -> None:
        self.tensors: dict[str, Flowing | None] = {}
        """None for one that a step left out, or the client: optional inputs go without."""
        self.missing = plan.needs.copy()
        """How many of the tensors that a step reads are not there yet."""
        self.unset = len(plan.outputs)
        """How many outputs are not there yet."""
        self.uses = 0
        """How many requests to steps wait or run that have come of it."""
        self.size = 0
        """Bytes of its tensors, counted where an answer of a decoupled step began it."""


class Owner(Protocol):
    """Who sent the request on its way, and answers it."""

    def run_answered(self, run: Run, wave: Wave, *, final: bool) -> None:
        """Every output of ``wave`` is there."""

    def run_ended(self, run: Run, error: ServeError | None) -> None:
        """Nothing more comes: all has been answered, or ``error`` ended it."""


class Run:
    """One request to an ensemble, its open steps, and what has come of it."""

    def __init__(self, owner: Owner, models: Models, request: InferRequest, cast: Cast, plan: Plan, limit: int) -> None:
        """``limit``: as many requests to one step may be open at once; 0 is any number."""
        self.request = request
        self.spent = Spent()
        self.is_over = False
        self._owner = owner
        self._models = models
        self._cast = cast
        self._plan = plan
        self._limit = limit
        self._open: dict[InferRequest, int] = {}
        self._ready: deque[tuple[int, Wave]] = deque()
        self._held: deque[tuple[int, Wave]] = deque()
        self._size = 0
        """Bytes of all waves that decoupled steps have begun, and that are not through."""
        self._advancing = False
        self._says_more = bool(request.parameters or request.priority or request.timeout_us or request.sequence_id)
        """Whether the client said more than its tensors, which few do."""
        for servable in cast.servables:
            servable.hold()

    def begin(self, tensors: dict[str, Flowing | None]) -> None:
        """Let ``tensors``, the inputs of the request, flow; may have answered it before it returns."""
        self._write(Wave(self._plan), tensors)
        self._advance()

    def cancel(self) -> None:
        """The client has gone: nothing new begins, and the models are told."""
        self.end(ServeError(Code.CANCELLED, "request cancelled by the client"))

    def end(self, error: ServeError | None) -> None:
        """It is over; what still runs is cancelled."""
        if self.is_over:
            return
        self.is_over = True
        to_cancel, self._open = list(reversed(self._open)), {}
        self._ready.clear()
        self._held.clear()
        to_release = self._cast.servables.copy()
        try:
            self._finish(to_cancel, to_release, error)
        except RecursionError:  # goes on once the stack has room again
            asyncio.get_running_loop().call_soon(self._finish, to_cancel, to_release, error)

    def _finish(self, to_cancel: list[InferRequest], to_release: list[Servable], error: ServeError | None) -> None:
        while to_cancel:
            self._models.cancel(to_cancel.pop())
        while to_release:
            to_release.pop().release()
        if error is None or self.request.spent is None:
            self._owner.run_ended(self, error)
        else:  # a failure that goes up through ensembles takes no more of the stack than one of them needs
            asyncio.get_running_loop().call_soon(self._owner.run_ended, self, error)

    def _write(self, wave: Wave, tensors: dict[str, Flowing | None]) -> None:
        """Put ``tensors`` into ``wave``, and note the steps that have all they read."""
        plan = self._plan
        for tensor, flowing in tensors.items():
            wave.tensors[tensor] = flowing
            for step in plan.readers.get(tensor, ()):
                wave.missing[step] -= 1
                if not wave.missing[step]:
                    self._ready.append((step, wave))
                    wave.uses += 1
            if tensor in plan.outputs:
                wave.unset -= 1

    def _advance(self) -> None:
        """Start what can be started. A step may answer at once: that is seen by the loop that is already running."""
        if self._advancing:
            return
        self._advancing = True
        while self._ready and not self.is_over:
            if self.request.cancelled:
                self.cancel()
                break
            step, wave = self._ready.popleft()
            if self._limit and sum(number == step for number in self._open.values()) >= self._limit:
                self._held.append((step, wave))
            else:
                self._start(step, wave)
        self._advancing = False
        if not self._open:
            self.end(None)

    def _start(self, step: int, wave: Wave) -> None:
        member = self._cast.members[step]
        request = self._request(member, wave)
        request.reply = partial(self._replied, step, wave, request)
        self._open[request] = step
        try:
            member.servable.infer(request)
        except ServeError as error:
            self._close(request)
            self.end(error)
        except Exception as error:
            logger.exception("a request to model '%s' could not be made", member.name)
            self._close(request)
            self.end(failure(member.name, error))

    def _request(self, member: Member, wave: Wave) -> InferRequest:
        """What ``member`` is asked in ``wave``: id, parameters and the like are those of the client's request."""
        inputs: dict[str, InferInput] = {}
        tensors, once, batching = wave.tensors, self._plan.once, member.batching
        sequence: Sequence | None = None
        for name, tensor, dims in member.inputs:
            flowing = tensors.pop(tensor) if tensor in once else tensors[tensor]
            if flowing is None:
                continue
            shape, data = flowing.shape, flowing.data
            if batching != (flowing.rows > 0):
                shape = fitted(dims, batching=batching, rows=flowing.rows, shape=shape)
                data = data if isinstance(data, list) else data.reshape(shape)
            inputs[name] = InferInput(name, flowing.datatype, shape, flowing.elements, data)
            sequence = sequence or flowing.sequence
        request = InferRequest(member.name, member.version, self.request.id, inputs, monotonic_ns())
        request.spent = self.spent
        if self.request.trace is not None:
            request.trace = self.request.trace.child()
        if member.wanted is not None:
            request.outputs = member.wanted
            request.may_lack_outputs = True
        if self._says_more:
            self._say_more(request)
        if sequence is not None:
            request.sequence_id, request.sequence_start, request.sequence_end = sequence
        return request

    def _say_more(self, request: InferRequest) -> None:
        whole = self.request
        request.parameters = whole.parameters
        request.priority = whole.priority
        request.timeout_us = whole.timeout_us
        request.sequence_id = whole.sequence_id
        request.sequence_start = whole.sequence_start
        request.sequence_end = whole.sequence_end

    def _replied(self, step: int, wave: Wave, request: InferRequest, response: InferResponse) -> Outcome:
        """One answer of a step."""
        if response.final:
            # Ends the circle request -> reply -> request. An answer that was lost on its way up comes a second time.
            vars(request).pop("reply", None)
        if self.is_over:
            return _ANSWERED
        if response.final:
            self._close(request)
            wave.uses -= 1
        if response.error is not None:
            self.end(response.error)
            return _ANSWERED
        member = self._cast.members[step]
        only_end = member.decoupled and response.final and not response.columns and response.parameters is None
        if not only_end:
            self._flow_on(member, wave, request, response)
        self._count_off(wave)
        if not self.is_over:
            self._advance()
        return _ANSWERED

    def _flow_on(self, member: Member, wave: Wave, request: InferRequest, response: InferResponse) -> None:
        """Let flow what ``member`` has answered to its request in ``wave``."""
        if member.decoupled:
            if self._is_flooded(member):
                return
            wave = Wave(self._plan)
        tensors = _tensors(member, request, response)
        if member.decoupled or wave.size:
            self._count(wave, tensors)
        self._write(wave, tensors)
        if not wave.unset:
            self._owner.run_answered(self, wave, final=not (self._open or self._ready))
        self._count_off(wave)

    def _is_flooded(self, member: Member) -> bool:
        """Whether so much waits already that another answer of ``member`` is too much; then it is over."""
        waiting = len(self._open) + len(self._held) + len(self._ready)
        if waiting <= MOST_WAITING and self._size <= MOST_WAITING_BYTES:
            return False
        self.end(
            ServeError(
                Code.UNAVAILABLE,
                f"model '{member.name}' answers faster than the steps behind it take its answers: {waiting} requests "
                f"to steps and {self._size} bytes wait, more than {MOST_WAITING} or {MOST_WAITING_BYTES}; have it "
                "answer less at a time, or raise the count of the instance_group of the models behind it",
            )
        )
        return True

    def _count(self, wave: Wave, tensors: dict[str, Flowing | None]) -> None:
        size = sum([_size_of(flowing.data) for flowing in tensors.values() if flowing is not None])
        wave.size += size
        self._size += size

    def _count_off(self, wave: Wave) -> None:
        """No longer count ``wave``, if it is through."""
        if not wave.uses:
            self._size -= wave.size
            wave.size = 0

    def _close(self, request: InferRequest) -> None:
        """A step has answered to the end: one that was held up for it may begin."""
        step = self._open.pop(request, None)
        for held in self._held:
            if held[0] == step:
                self._held.remove(held)
                self._ready.append(held)
                break


def _tensors(member: Member, request: InferRequest, response: InferResponse) -> dict[str, Flowing | None]:
    """What a step wrote, by tensor of the ensemble; None for what its model left out."""
    written: dict[str, Flowing | None] = dict.fromkeys(member.outputs.values())
    rows = request.batch_size if member.batching else 0
    parameters, start, stop = response.parameters, response.start, response.stop
    sequence = _sequence(request, parameters) if parameters or request.sequence_id else None
    for column in response.columns:
        tensor = member.outputs.get(column.name)
        if tensor is not None:
            array = column.array if stop == -1 else column.array[start:stop]
            written[tensor] = Flowing(column.datatype, array.shape, array.size, array, rows, parameters, sequence)
    return written


def _size_of(data: list[Any] | NDArray[Any]) -> int:
    """About how many bytes ``data`` keeps in memory."""
    if isinstance(data, list):
        return 8 * len(data)
    if data.dtype.hasobject:
        return data.nbytes + sum([len(text) for text in data.flat])
    return data.nbytes


def _sequence(request: InferRequest, parameters: dict[str, Any] | None) -> Sequence | None:
    """The sequence of what a step answers: a model may change it for the steps behind (Triton's ConsumeResponse)."""
    if parameters and any(key in parameters for key in SEQUENCE):
        identity = parameters.get("sequence_id", request.sequence_id)
        return identity, parameters.get("sequence_start", False), parameters.get("sequence_end", False)
    if request.sequence_id:
        return request.sequence_id, request.sequence_start, request.sequence_end
    return None
