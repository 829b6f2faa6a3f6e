"""``ModelInfer``: one request, one answer. The hot path of the gRPC door."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from bident.doors.answers import takes_long
from bident.doors.aside import READ_HERE, aside
from bident.doors.forwarding import Forwarding
from bident.doors.grpc.call import Buffer, Call
from bident.doors.grpc.infer_request import Raw, Reader, Wanted, Wording
from bident.doors.grpc.infer_response import encode
from bident.doors.grpc.status import STATUS
from bident.doors.grpc.traced import begin_trace, sending
from bident.doors.shared_tensors import COPY_HERE
from bident.engine.engine import Engine
from bident.engine.servable import Servable
from bident.errors import Code, ServeError
from bident.wire.infer import InferRequest, InferResponse, Outcome
from bident.wire.trace import Trace

logger = logging.getLogger("bident.grpc")

_ANSWERED = Outcome.ANSWERED


class Asked(NamedTuple):
    """What a message asks, its raw tensors, who is asked, and when it came (monotonic nanoseconds)."""

    wording: Wording
    raws: Sequence[Raw]
    servable: Servable
    received_ns: int


class Inference:
    """Reads requests, hands them to one engine, and answers those of ``ModelInfer``."""

    def __init__(self, engine: Engine, forwarding: Forwarding | None) -> None:
        """``forwarding``: which metadata becomes parameters of a request, if any does."""
        self.engine = engine
        self.tracing = engine.tracing
        self._forwarding = forwarding
        self._reader = Reader()
        self._later: set[asyncio.Task[None]] = set()
        self.streamed = 0
        """How many requests of all streams are under way."""

    def begin(self, message: Buffer) -> tuple[Wording, list[Raw]]:
        """Whom ``message`` asks; what it asks is read later."""
        return self._reader.begin(message)

    def is_long(self, message: Buffer, wording: Wording, raws: Sequence[Raw]) -> bool:
        """Whether the rest is better read by ``request_aside``. Raises INVALID_ARG."""
        if len(message) > READ_HERE and wording.is_long(raws, READ_HERE):
            return True
        if not wording.is_read:
            wording.read(has_raws=bool(raws))
            self._reader.remember(wording)
        return wording.shared_bytes > COPY_HERE

    def request(self, asked: Asked) -> InferRequest:
        """The question that ``begin`` began to read. Raises INVALID_ARG with what is wrong and where."""
        wording, raws, servable, received_ns = asked
        if not wording.is_read:
            wording.read(has_raws=bool(raws))
        return wording.request(raws, received_ns, self.engine.shared_memory, servable.config.inputs)

    async def request_aside(self, asked: Asked) -> InferRequest:
        """As ``request``, by a thread."""
        return await aside(partial(self.request, asked))

    def forward(self, request: InferRequest, metadata: Mapping[bytes, bytes]) -> None:
        """Add what is forwarded of the ``metadata`` of its call to ``request``. Raises INVALID_ARG."""
        if self._forwarding is not None:
            self._forwarding.apply(request, metadata)

    def wanted(self, wording: Wording) -> Wanted | None:
        """The outputs that are wanted in another form than as bytes; None if none is."""
        return wording.wanted(self.engine.shared_memory)

    def do_later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` as a task. It raises nothing."""
        task = asyncio.get_running_loop().create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def model_infer(self, call: Call, message: Buffer) -> Awaitable[None] | None:
        """Queue the request; :meth:`_reply` writes the answer when it comes."""
        wording, raws = self._reader.begin(message)
        servable = self._single(wording)
        if wording.is_read and not wording.shared_bytes and len(message) <= READ_HERE:
            request = wording.request(raws, call.received_ns, self.engine.shared_memory, servable.config.inputs)
        else:
            asked = Asked(wording, raws, servable, call.received_ns)
            if self.is_long(message, wording, raws):
                return self._infer_long(call, asked)
            request = self.request(asked)
        self._queue(call, servable, wording, request)
        return None

    async def _infer_long(self, call: Call, asked: Asked) -> None:
        """Have a thread read the message, then go on with the model as it is by then."""
        request = await self.request_aside(asked)
        if not call.is_over:
            self._queue(call, self._single(asked.wording), asked.wording, request)

    def _single(self, wording: Wording) -> Servable:
        """Who answers. Raises UNSUPPORTED for models that give any number of answers."""
        servable = self.engine.servable(wording.model_name, wording.version)
        if servable.config.decoupled:
            raise ServeError(
                Code.UNSUPPORTED,
                "ModelInfer RPC doesn't support models with decoupled transaction policy: send the request over "
                "ModelStreamInfer, which has room for any number of answers",
            )
        return servable

    def _queue(self, call: Call, servable: Servable, wording: Wording, request: InferRequest) -> None:
        if self._forwarding is not None:
            self._forwarding.apply(request, call.metadata)
        trace = None
        if self.tracing.is_on:
            trace = begin_trace(self.tracing, request, call.metadata, call.received_ns, call.received_ns)
        request.reply = partial(self._reply, call, servable, self.wanted(wording), trace)
        servable.infer(request)
        if not call.is_over:
            call.on_cancel = partial(self.engine.cancel, request)

    def _reply(
        self, call: Call, servable: Servable, wanted: Wanted | None, trace: Trace | None, response: InferResponse
    ) -> Outcome:
        """Encode and send the answer."""
        call.on_cancel = None  # also ends the circle call -> request -> reply -> call
        if call.is_over:
            return _ANSWERED
        if response.error is not None:
            _refuse(call, response.error, trace)
            return _ANSWERED
        if takes_long(response, None if wanted is None else wanted.get):
            self.do_later(_reply_later(call, servable, wanted, trace, response))
            return Outcome.LATER
        answer = written(response, wanted, servable)
        if isinstance(answer, ServeError):
            _refuse(call, answer, trace)
            return Outcome.FAILED
        if trace is None:
            call.reply(answer)
        else:
            with sending(trace):
                call.reply(answer)
        return _ANSWERED


async def _reply_later(
    call: Call, servable: Servable, wanted: Wanted | None, trace: Trace | None, response: InferResponse
) -> None:
    """Have a thread encode the answer, and say what became of it."""
    answered = False
    try:
        answer = await aside(partial(written, response, wanted, servable))
        if isinstance(answer, ServeError):
            _refuse(call, answer, trace)
        else:
            with sending(trace):
                call.reply(answer)
            answered = True
    finally:
        if response.settled is not None:
            response.settled(answered)


def _refuse(call: Call, error: ServeError, trace: Trace | None) -> None:
    with sending(trace):
        call.finish(STATUS[error.code], error.message)


def written(
    response: InferResponse, wanted: Wanted | None, servable: Servable, final: bytes = b""
) -> bytes | ServeError:
    """What ``encode`` makes of an answer, or why it cannot be written."""
    try:
        return encode(response, wanted, servable, final)
    except ServeError as error:
        return error
    except Exception:
        logger.exception("an answer of model '%s' could not be written", response.model_name)
        text = f"the answer of model '{response.model_name}' could not be written; see the log"
        return ServeError(Code.INTERNAL, text)
