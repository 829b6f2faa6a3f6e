"""``ModelStreamInfer``: any number of requests over one call, and any number of answers to each.

Triton's rules (``stream_infer_handler.cc``): models that give one answer answer in the order in which they
were asked; decoupled ones whenever they have something to say. Each answer says whether it is its request's
last. Errors are answers too, unless the client wants the first as the status of the call
(``triton_grpc_error: true`` in its metadata).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from functools import partial
from time import monotonic_ns
from typing import Any

from bident.doors.answers import takes_long
from bident.doors.aside import aside
from bident.doors.grpc.call import Buffer, Call, Status
from bident.doors.grpc.infer_request import Wanted, Wording
from bident.doors.grpc.infer_response import FINAL, NOT_FINAL, in_stream
from bident.doors.grpc.inference import Asked, Inference, written
from bident.doors.grpc.messages import pb
from bident.doors.grpc.status import STATUS
from bident.doors.grpc.traced import begin_trace, sending
from bident.doors.pace import MOMENT_SECONDS, MOST_AT_ONCE, MOST_UNSENT
from bident.engine.servable import Servable
from bident.errors import Code, ServeError
from bident.wire.infer import InferRequest, InferResponse, Outcome
from bident.wire.trace import Trace

logger = logging.getLogger("bident.grpc")

_ANSWERED = Outcome.ANSWERED
_MOST_REQUESTS = 1024
"""So many requests of a stream may be under way; the next ones wait with the client."""
_MOST_BYTES = 256 << 20
"""The same for the bytes of their messages."""
_CROWD = 65_536
"""With more under way on all streams together, each may have ``_MOST_IN_CROWD``."""
_MOST_IN_CROWD = 16
_MOST_OWED = 1 << 20
"""Nor are requests taken while more than these many bytes of answers wait for the client."""
_LOOK_SECONDS = 0.02
"""How often it is looked whether a client has taken its answers."""


class InferStream:
    """One call of ``ModelStreamInfer``."""

    def __init__(self, inference: Inference, call: Call) -> None:
        self.inference = inference
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._turns: set[_Turn] = set()
        """The requests that have not been answered to the end."""
        self._in_order: deque[_Turn] = deque()
        self._bytes = 0
        self._has_ended = False
        self._is_paused = False
        self._is_reading = False
        self._look: asyncio.Handle | None = None
        self._behind_since = -1.0
        self._waiting_ns = monotonic_ns()
        """Since when the next request is waited for."""
        self._closes_on_error = call.metadata.get(b"triton_grpc_error", b"").lower() == b"true"
        call.on_message = self._take
        call.on_half_close = self._end
        call.on_cancel = self._cancel

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for answers any more."""
        return self._call.is_over

    # Requests

    def _take(self, message: Buffer) -> None:
        """One more request."""
        if self.is_over:
            return
        waiting_ns, self._waiting_ns = self._waiting_ns, monotonic_ns()
        try:
            wording, raws = self.inference.begin(message)
        except ServeError as error:
            # There is no model and no id to answer it with.
            self._close(STATUS[error.code], error.message)
            return
        turn = _Turn(self, wording, len(message))
        self._turns.add(turn)
        self.inference.streamed += 1
        self._bytes += turn.size
        try:
            asked = Asked(wording, raws, turn.find(), self._waiting_ns)
            if self.inference.is_long(message, wording, raws):
                self._is_reading = True
                self.inference.do_later(self._ask_long(turn, asked, waiting_ns))
            else:
                turn.ask(self.inference.request(asked), self._call.metadata, waiting_ns)
        except ServeError as error:
            turn.fail(error)
        self._regulate()

    async def _ask_long(self, turn: _Turn, asked: Asked, waiting_ns: int) -> None:
        """Have a thread read a long message; until then no other is taken."""
        try:
            request = await self.inference.request_aside(asked)
            if not self.is_over:
                turn.find()  # the model as it is by now
                turn.ask(request, self._call.metadata, waiting_ns)
        except ServeError as error:
            turn.fail(error)
        except Exception:
            logger.exception("a request to model '%s' could not be read", turn.wording.model_name)
            turn.fail(ServeError(Code.INTERNAL, "the request could not be read; see the log"))
        finally:
            self._is_reading = False
            self._regulate()

    def _end(self) -> None:
        """The client asks nothing more."""
        self._has_ended = True
        self._regulate()

    def _cancel(self) -> None:
        """Nobody waits for the answers any more."""
        turns, self._turns = self._turns, set()
        self.inference.streamed -= len(turns)
        self._in_order.clear()
        for turn in turns:
            turn.cancel()
        if self._look is not None:
            self._look.cancel()

    def _close(self, status: Status, message: str) -> None:
        """End the call, and with it all that is under way."""
        self._call.finish(status, message)
        self._cancel()

    def _regulate(self) -> None:
        """Take requests or none, as it should be by now; end the call when all is done."""
        if self.is_over:
            return
        if self._has_ended and not self._turns:
            self._call.on_cancel = None
            self._call.finish()
            return
        owes = self._call.unsent > _MOST_OWED
        most = _MOST_REQUESTS if self.inference.streamed < _CROWD else _MOST_IN_CROWD
        if owes or self._is_reading or len(self._turns) >= most or self._bytes > _MOST_BYTES:
            if not self._is_paused:
                self._is_paused = True
                self._call.pause()
            if owes and self._look is None:
                self._look = self._loop.call_later(_LOOK_SECONDS, self._look_again)
        elif self._is_paused and self._look is None:
            # Not at once: taking them may come back here, and deeper and deeper.
            self._look = self._loop.call_soon(self._resume)

    def _look_again(self) -> None:
        self._look = None
        self._regulate()

    def _resume(self) -> None:
        self._look = None
        if not self.is_over:
            self._is_paused = False
            self._call.resume()
            self._regulate()

    # Answers

    def line_up(self, turn: _Turn) -> None:
        """``turn`` answers when those before it have."""
        self._in_order.append(turn)

    def put(self, turn: _Turn, answer: bytes | None, *, final: bool) -> None:
        """One more answer of ``turn``, if any; the last one if it is ``final``."""
        if self.is_over or turn not in self._turns:
            return
        turn.is_done = final
        if turn.is_in_order:
            if answer is not None:
                turn.answers.append(answer)
            self._send_in_order()
        else:
            if answer is not None:
                self._send(answer)
            if final:
                self._leave(turn)
        self._regulate()

    def refuse(self, turn: _Turn, error: ServeError, *, final: bool) -> None:
        """The same for an answer that is an error."""
        if self._closes_on_error:
            self._close(STATUS[error.code], error.message)
        else:
            self.put(turn, turn.refusal(error, final=final), final=final)

    def _send_in_order(self) -> None:
        waiting = self._in_order
        while waiting:
            first = waiting[0]
            for answer in first.answers:
                self._send(answer)
            first.answers.clear()
            if not waiting or not first.is_done:  # none waits any more where sending has ended the call
                return
            waiting.popleft()
            self._leave(first)

    def _leave(self, turn: _Turn) -> None:
        self._turns.remove(turn)
        self.inference.streamed -= 1
        self._bytes -= turn.size

    def _send(self, answer: bytes) -> None:
        """Send one answer, and cut off a client that does not keep up with them.

        A model may make a lot in a moment, faster than any client takes it; so the measure is what
        still waits a moment later.
        """
        self._call.send(answer)
        unsent = self._call.unsent
        if unsent <= MOST_UNSENT:
            self._behind_since = -1.0
            return
        now = self._loop.time()
        if self._behind_since < 0:
            self._behind_since = now
        if unsent > MOST_AT_ONCE or now - self._behind_since > MOMENT_SECONDS:
            text = f"a client that does not keep up with ModelStreamInfer was cut off: {unsent} bytes of answers wait"
            logger.warning(text)
            self._close(Status.RESOURCE_EXHAUSTED, text)


class _Turn:
    """One request of a stream, and its answers."""

    __slots__ = (
        "_request",
        "_servable",
        "_stream",
        "_trace",
        "_wanted",
        "answers",
        "is_done",
        "is_in_order",
        "size",
        "wording",
    )

    def __init__(self, stream: InferStream, wording: Wording, size: int) -> None:
        self._stream = stream
        self._servable: Servable | None = None
        self._wanted: Wanted | None = None
        self._request: InferRequest | None = None
        self._trace: Trace | None = None
        self.wording = wording
        self.size = size
        self.is_in_order = False
        self.is_done = False
        self.answers: list[bytes] = []
        """What waits for the answers of earlier requests."""

    def find(self) -> Servable:
        """Who answers. Raises ServeError, which has its place in the order too."""
        had_place = self.is_in_order or self._servable is not None
        self._servable = None
        try:
            self._servable = self._stream.inference.engine.servable(self.wording.model_name, self.wording.version)
        finally:
            if not had_place and not self._is_decoupled:
                self.is_in_order = True
                self._stream.line_up(self)
        return self._servable

    def ask(self, request: InferRequest, metadata: Mapping[bytes, bytes], waiting_ns: int) -> None:
        """Queue ``request``, which has been waited for since ``waiting_ns``. Raises ServeError if it is refused."""
        assert self._servable is not None
        inference = self._stream.inference
        inference.forward(request, metadata)
        self._wanted = inference.wanted(self.wording)
        if inference.tracing.is_on:
            self._trace = begin_trace(inference.tracing, request, metadata, waiting_ns, request.received_ns)
        request.reply = self._reply
        self._request = request
        self._servable.infer(request)

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        request, self._request = self._request, None
        if request is not None:
            self._stream.inference.engine.cancel(request)

    def fail(self, error: ServeError) -> None:
        """It is not asked at all."""
        self._request = None
        self._stream.refuse(self, error, final=True)

    def refusal(self, error: ServeError, *, final: bool) -> bytes:
        """The answer that tells of ``error``."""
        message = pb.ModelStreamInferResponse(error_message=error.message, infer_response=self._bare(final=final))
        text: bytes = message.SerializeToString()
        return text

    @property
    def _is_decoupled(self) -> bool:
        return self._servable is not None and self._servable.config.decoupled

    def _bare(self, *, final: bool) -> Any:
        """An answer without outputs, with the names that the client used."""
        wording = self.wording
        bare = pb.ModelInferResponse(id=wording.id, model_name=wording.model_name, model_version=wording.model_version)
        bare.MergeFromString(FINAL if final else NOT_FINAL)
        return bare

    def _reply(self, response: InferResponse) -> Outcome:
        stream = self._stream
        final = response.final
        if final:
            self._request = None  # also ends the circle request -> reply -> turn -> request
        if stream.is_over:
            return _ANSWERED
        if response.error is not None:
            self._deliver(response, response.error)
            return _ANSWERED
        if self._is_decoupled and final and not response.columns and not response.parameters:
            empty = self.wording.has_empty_final
            stream.put(self, in_stream(self._bare(final=True).SerializeToString()) if empty else None, final=True)
            return _ANSWERED
        if self.is_in_order and takes_long(response, None if self._wanted is None else self._wanted.get):
            stream.inference.do_later(self._put_later(response))
            return Outcome.LATER
        return _ANSWERED if self._deliver(response, self._written(response)) else Outcome.FAILED

    async def _put_later(self, response: InferResponse) -> None:
        """Have a thread write the answer, and say what became of it."""
        answered = False
        try:
            answered = self._deliver(response, await aside(partial(self._written, response)))
        finally:
            if response.settled is not None:
                response.settled(answered)

    def _deliver(self, response: InferResponse, answer: bytes | ServeError) -> bool:
        """Put what was written into the stream; returns whether that is the answer."""
        with sending(self._trace):
            if isinstance(answer, ServeError):
                self._stream.refuse(self, answer, final=response.final)
                return False
            self._stream.put(self, in_stream(answer), final=response.final)
            return True

    def _written(self, response: InferResponse) -> bytes | ServeError:
        """The answer, or why it cannot be written."""
        assert self._servable is not None
        return written(response, self._wanted, self._servable, FINAL if response.final else NOT_FINAL)
