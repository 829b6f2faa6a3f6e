"""``ModelInfer``: one request, one answer. The hot path of the gRPC door."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from bident.doors.aside import aside
from bident.doors.forwarding import Forwarding
from bident.doors.grpc.call import Buffer, Call, Status
from bident.doors.grpc.infer_request import Raw, Reader, Wanted, Wording
from bident.doors.grpc.infer_response import encode, takes_long
from bident.doors.grpc.status import STATUS
from bident.engine.engine import Engine
from bident.engine.servable import Servable
from bident.errors import Code, ServeError
from bident.wire.infer import InferRequest, InferResponse, Outcome

logger = logging.getLogger("bident.grpc")

_ANSWERED = Outcome.ANSWERED
_READ_HERE = 1 << 20
"""Up to this many bytes of elements, or of strings, are read by the event loop itself."""


class Inference:
    """Reads requests, hands them to one engine, and answers those of ``ModelInfer``."""

    def __init__(self, engine: Engine, forwarding: Forwarding | None) -> None:
        """``forwarding``: which metadata becomes parameters of a request, if any does."""
        self.engine = engine
        self._forwarding = forwarding
        self._reader = Reader()
        self._later: set[asyncio.Task[None]] = set()

    def begin(self, message: Buffer) -> tuple[Wording, list[Raw]]:
        """Whom ``message`` asks; what it asks is for ``request`` to read."""
        return self._reader.begin(message)

    @staticmethod
    def is_long(message: Buffer, wording: Wording, raws: Sequence[Raw]) -> bool:
        """Whether the rest is better read by ``request_aside``."""
        return len(message) > _READ_HERE and wording.is_long(raws, _READ_HERE)

    def request(
        self, wording: Wording, raws: Sequence[Raw], metadata: Mapping[bytes, bytes], received_ns: int
    ) -> InferRequest:
        """The question that ``begin`` began to read. Raises INVALID_ARG with what is wrong and where."""
        if not wording.is_read:
            wording.read(has_raws=bool(raws))
            self._reader.remember(wording)
        request = wording.request(raws, received_ns, self.engine.shared_memory)
        if self._forwarding is not None:
            self._forwarding.apply(request, metadata)
        return request

    async def request_aside(
        self, wording: Wording, raws: Sequence[Raw], metadata: Mapping[bytes, bytes], received_ns: int
    ) -> InferRequest:
        """As ``request``, by a thread."""
        return await aside(partial(self.request, wording, raws, metadata, received_ns))

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
        if len(message) > _READ_HERE and wording.is_long(raws, _READ_HERE):
            return self._infer_long(call, wording, raws)
        self._queue(call, servable, wording, self.request(wording, raws, call.metadata, call.received_ns))
        return None

    async def _infer_long(self, call: Call, wording: Wording, raws: Sequence[Raw]) -> None:
        """Have a thread read the message, then go on with the model as it is by then."""
        request = await self.request_aside(wording, raws, call.metadata, call.received_ns)
        if not call.is_over:
            self._queue(call, self._single(wording), wording, request)

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
        request.reply = partial(self._reply, call, servable, self.wanted(wording))
        servable.infer(request)
        if not call.is_over:
            call.on_cancel = partial(self.engine.cancel, request)

    def _reply(self, call: Call, servable: Servable, wanted: Wanted | None, response: InferResponse) -> Outcome:
        """Encode and send the answer."""
        call.on_cancel = None  # also ends the circle call -> request -> reply -> call
        if call.is_over:
            return _ANSWERED
        error = response.error
        if error is not None:
            call.finish(STATUS[error.code], error.message)
            return _ANSWERED
        try:
            if takes_long(response, wanted):
                self.do_later(self._reply_later(call, servable, wanted, response))
                return Outcome.LATER
            call.reply(encode(response, wanted, servable))
            return _ANSWERED
        except ServeError as unfit:
            call.finish(STATUS[unfit.code], unfit.message)
        except Exception:
            logger.exception("an answer of model '%s' could not be written", response.model_name)
            call.finish(Status.INTERNAL, unwritten(response))
        return Outcome.FAILED

    async def _reply_later(
        self, call: Call, servable: Servable, wanted: Wanted | None, response: InferResponse
    ) -> None:
        """Have a thread encode the answer, and say what became of it."""
        answered = False
        try:
            call.reply(await aside(partial(encode, response, wanted, servable)))
            answered = True
        except ServeError as unfit:
            call.finish(STATUS[unfit.code], unfit.message)
        except Exception:
            logger.exception("an answer of model '%s' could not be written", response.model_name)
            call.finish(Status.INTERNAL, unwritten(response))
        finally:
            if response.settled is not None:
                response.settled(answered)


def unwritten(response: InferResponse) -> str:
    """What the client is told where writing its answer failed for a reason that is in the log."""
    return f"the answer of model '{response.model_name}' could not be written; see the log"
