"""What a model asks of the server, carried out: other models' answers (BLS), loads, readiness.

The words of refusals are Triton's (``python_backend``, request_executor.cc).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from time import monotonic_ns
from typing import Any, Protocol
from weakref import WeakValueDictionary

from bident.backends.base import Arrays, Server
from bident.backends.python.messages import (
    SEQUENCE_END,
    SEQUENCE_START,
    Died,
    Event,
    InferCall,
    InferDropped,
    ModelCall,
)
from bident.errors import Code, ServeError
from bident.wire.datatypes import from_numpy
from bident.wire.infer import InferInput, InferRequest, InferResponse, Outcome
from bident.wire.trace import Trace

logger = logging.getLogger("bident.python")

_COMPLAINTS = 100
"""As many failures of an instance's calls are logged; a message may hold a number that is new each time."""


class Asking(Protocol):
    """A running model, which awaits answers to what it has asked."""

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

    def answer_call(self, call: int, *, error: str | None = None, **details: Any) -> None:
        """Answer a ModelCall."""


class ModelHost(Protocol):
    """Where a model runs."""

    @property
    def worker(self) -> Asking | None:
        """The running model; None while it is not there."""

    def answered(self) -> None:
        """To be called after using ``worker``."""


class ModelCalls:
    """The calls of one instance, whichever worker it has."""

    def __init__(self, server: Server, host: ModelHost, label: str) -> None:
        """``label``: whose calls they are, for the log."""
        self._server = server
        self._label = label
        self._complained: set[tuple[str, str]] = set()
        self._host = host
        self._asked: dict[int, InferRequest] = {}
        self._given_up: set[int] = set()
        self._tasks: set[asyncio.Future[None]] = set()
        self.traces: WeakValueDictionary[int, Trace] = WeakValueDictionary()
        """Those of the requests that the model has been given, by their ids: its calls may be on their behalf."""

    def take(self, event: Event) -> None:
        """Carry out what a worker asks; what else it says is not for here."""
        if isinstance(event, InferCall):
            self._infer(event)
        elif isinstance(event, InferDropped):
            self._drop(event.call)
        elif isinstance(event, ModelCall):
            self._control(event)
        elif isinstance(event, Died):
            for number in list(self._asked):
                self._drop(number)
            self._given_up.clear()

    def _infer(self, call: InferCall) -> None:
        """Ask another model; the worker gets every answer as it comes."""
        worker = self._host.worker
        if worker is None:
            return
        if call.call in self._asked:
            raise ValueError(f"call {call.call} is under way already")
        version = "" if call.version < 0 else str(call.version)
        try:
            self._check(call, version)
            request = _request(call, version)
            asking = self.traces.get(call.request.trace_id)
            if asking is not None:
                request.trace = asking.child()
            request.reply = lambda response: self._answer(worker, call, response)
            self._asked[call.call] = request
            self._server.infer(request)
        except ServeError as error:
            self._asked.pop(call.call, None)
            self._complain(call, error)
            told = ServeError(error.code, f"Model {call.model} - Error when running inference: {error.message}")
            worker.answer_infer(call.call, error=told)
            self._host.answered()

    def _drop(self, number: int) -> None:
        """The model wants no more answers to a call."""
        request = self._asked.pop(number, None)
        if request is not None:
            self._server.cancel(request)

    def _control(self, call: ModelCall) -> None:
        """Load, unload, or say whether a model is ready."""
        worker = self._host.worker
        if worker is None:
            return
        if call.what == "is_ready":
            worker.answer_call(call.call, ready=self._server.is_model_ready(call.model, call.version))
            self._host.answered()
            return
        if call.what == "load":
            changing: Awaitable[None] = self._server.load(call.model, call.config or None, call.files)
        else:
            changing = self._server.unload(call.model, dependents=call.unload_dependents)
        task = asyncio.ensure_future(self._change(worker, call, changing))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _change(self, worker: Asking, call: ModelCall, changing: Awaitable[None]) -> None:
        problem: str | None = None
        try:
            await changing
        except ServeError as error:
            problem = error.message
        except Exception as error:
            logger.exception("%s '%s', as a model has asked, failed", call.what, call.model)
            problem = f"{type(error).__name__}: {error}"
        if self._host.worker is worker:
            worker.answer_call(call.call, error=problem)
            self._host.answered()

    def _check(self, call: InferCall, version: str) -> None:
        if not self._server.is_model_ready(call.model, version):
            cure = f"load its version {version}, or ask another" if version else "load it, or correct the name"
            raise ServeError(
                Code.INTERNAL, f"Failed for execute the inference request. Model '{call.model}' is not ready: {cure}"
            )
        if self._server.is_decoupled(call.model, version) and not call.decoupled:
            raise ServeError(
                Code.INTERNAL,
                f"Model {call.model} is using the decoupled. The current BLS request call doesn't support models using "
                "the decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' "
                "calls for decoupled models.",
            )

    def _answer(self, worker: Asking, call: InferCall, response: InferResponse) -> Outcome:
        if self._host.worker is not worker:
            return Outcome.ANSWERED  # whoever asked has died meanwhile
        given_up = call.call in self._given_up
        if response.final:
            self._asked.pop(call.call, None)
            self._given_up.discard(call.call)
        if given_up:
            return Outcome.ANSWERED
        if response.error is not None:
            self._complain(call, response.error)
        outputs = {output.name: output.array for output in response.outputs} or None
        try:
            worker.answer_infer(
                call.call, outputs, error=response.error, parameters=response.parameters, final=response.final
            )
        except ServeError as error:
            self._give_up(worker, call, error, over=response.final)
        self._host.answered()
        return Outcome.ANSWERED

    def _give_up(self, worker: Asking, call: InferCall, error: ServeError, *, over: bool) -> None:
        """An answer cannot be handed over: the call ends with ``error``, and what else is answered is not wanted."""
        if not over:
            self._given_up.add(call.call)
            self._drop(call.call)
        self._complain(call, error)
        worker.answer_infer(call.call, error=error)

    def _complain(self, call: InferCall, error: ServeError) -> None:
        """Log a failed call, once: a model that never looks at ``has_error`` fails later, with less to go by."""
        what = (call.model, error.message.partition("\n")[0])
        if what in self._complained or len(self._complained) >= _COMPLAINTS:
            return
        self._complained.add(what)
        logger.warning("%s: its call of model '%s' failed: %s", self._label, *what)


def _request(call: InferCall, version: str) -> InferRequest:
    """What the model asks, as any other client's request. Raises INVALID_ARG for a tensor of no datatype."""
    asked = call.request
    inputs: dict[str, InferInput] = {}
    for name, array in (asked.inputs or {}).items():
        datatype = from_numpy(array.dtype)
        if datatype is None:
            raise ServeError(Code.INVALID_ARG, f"input '{name}' is {array.dtype}, which no datatype stands for")
        inputs[name] = InferInput(name, datatype, array.shape, array.size, array)
    request = InferRequest(call.model, version, asked.id, inputs, monotonic_ns())
    request.outputs = list(asked.outputs) if asked.outputs else None
    request.parameters = asked.parameters
    request.timeout_us = asked.timeout_us
    request.priority = asked.priority
    request.sequence_id = asked.correlation_id
    request.sequence_start = bool(asked.flags & SEQUENCE_START)
    request.sequence_end = bool(asked.flags & SEQUENCE_END)
    return request
