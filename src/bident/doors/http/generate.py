"""The generate routes: flat JSON in, and out either one answer or a stream of events.

Triton's *generate* extension (``http_server.cc``, GenerateRequestClass). Both serve every model;
``/generate`` is for those that give one response, decoupled or not.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from bident.doors.access import Api
from bident.doors.answers import takes_long
from bident.doors.aside import READ_HERE, aside
from bident.doors.forwarding import Forwarding
from bident.doors.http import compat
from bident.doors.http.exchange import Exchange, error_body
from bident.doors.http.generate_request import parse
from bident.doors.http.generate_response import encode
from bident.doors.http.routes import Routes
from bident.doors.http.status import STATUS
from bident.doors.http.traced import begin_trace, sending
from bident.engine.engine import Engine
from bident.engine.servable import Servable
from bident.errors import ServeError, invalid_arg
from bident.wire.infer import InferRequest, InferResponse, Outcome

logger = logging.getLogger("bident.http")

_EVENTS = b"text/event-stream; charset=utf-8"
_NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates various "
    "number of responses"
)
_ANSWERED = Outcome.ANSWERED
_FAILED = Outcome.FAILED

Reply = Callable[[InferResponse], Outcome]
Encode = Callable[[InferResponse], bytes]
Answer = Callable[[Exchange, bool, Encode], Reply]
"""Makes what answers an exchange, for a model that is decoupled or not."""


class Generate:
    """Serves the generate extension of one engine."""

    def __init__(self, engine: Engine, *, compatible: bool = False, forwarding: Forwarding | None = None) -> None:
        """``forwarding``: which headers models see.

        ``compatible``: with the numbers that Triton makes of JSON, and the JSON that it makes of numbers, and no
        headers, as it forwards none here.
        """
        self._engine = engine
        self._forwarding = None if compatible else forwarding
        self._parse = compat.parse_generate if compatible else parse
        self._encode = compat.encode_generate if compatible else encode

    def routes_into(self, routes: Routes) -> None:
        """Add the routes to ``routes``."""
        for model, version in (("/v2/models/{}", ("",)), ("/v2/models/{}/versions/{#}", ())):
            routes.add("POST", f"{model}/generate", self.generate, defaults=version, api=Api.INFERENCE)
            routes.add("POST", f"{model}/generate_stream", self.generate_stream, defaults=version, api=Api.INFERENCE)

    def generate(self, exchange: Exchange) -> Awaitable[None] | None:
        """Answer with the model's one response."""
        return self._ask(exchange, _OneAnswer)

    def generate_stream(self, exchange: Exchange) -> Awaitable[None] | None:
        """Answer with an event for each of the model's responses, as they come."""
        return self._ask(exchange, _Events)

    def _ask(self, exchange: Exchange, answer: Answer) -> Awaitable[None] | None:
        name, version = exchange.params
        servable = self._engine.servable(name, version)
        encoding = exchange.headers.get(b"content-encoding", b"").strip().lower()
        if encoding not in (b"", b"identity"):
            raise invalid_arg("Unsupported content-encoding, only 'identity' is supported.")
        read = partial(self._parse, (name, version), servable.config, exchange.body, exchange.received_ns)
        if len(exchange.body) > READ_HERE:
            return self._ask_long(exchange, answer, read)
        self._queue(exchange, servable, read(), answer)
        return None

    async def _ask_long(self, exchange: Exchange, answer: Answer, read: Callable[[], InferRequest]) -> None:
        """Have a thread read the body, then go on with the model as it is by then."""
        request = await aside(read)
        if not exchange.abandoned:
            self._queue(exchange, self._engine.servable(*exchange.params), request, answer)

    def _queue(self, exchange: Exchange, servable: Servable, request: InferRequest, answer: Answer) -> None:
        if self._forwarding is not None:
            self._forwarding.apply(request, exchange.sent_headers or exchange.headers)
        request.reply = answer(exchange, servable.config.decoupled, self._encode)
        if self._engine.tracing.is_on:
            begin_trace(self._engine.tracing, exchange, request)
        servable.infer(request)
        if exchange.data is None:
            exchange.on_abandon = partial(self._engine.cancel, request)


class _Written(NamedTuple):
    """A response as it goes to the client, and whether it could be written."""

    status: int
    body: bytes
    outcome: Outcome


class _OneAnswer:
    """The answer of ``/generate``: the one response there must be."""

    def __init__(self, exchange: Exchange, decoupled: bool, encode: Encode) -> None:
        self._exchange = exchange
        self._decoupled = decoupled
        self._encode = encode
        self._first: _Written | None = None

    def __call__(self, response: InferResponse) -> Outcome:
        exchange = self._exchange
        if exchange.abandoned or exchange.data is not None:
            return _ANSWERED
        if not _is_only_end(response, self._decoupled):
            if self._first is not None:
                return self._refuse(cancel=True)
            if response.final and takes_long(response):
                exchange.on_abandon = None
                exchange.respond_later(_respond_later(exchange, response, self._encode))
                return Outcome.LATER
            self._first = _write(response, self._encode)
        if not response.final:
            return _ANSWERED
        if self._first is None:
            return self._refuse(cancel=False)
        exchange.on_abandon = None  # also ends the circle exchange -> request -> reply -> exchange
        exchange.respond(self._first.status, (self._first.body,))
        return self._first.outcome

    def _refuse(self, *, cancel: bool) -> Outcome:
        """Say that there is not exactly one response; nobody waits for what a model would still make."""
        on_abandon, self._exchange.on_abandon = self._exchange.on_abandon, None
        self._exchange.respond_error(500, _NOT_ONE)
        if cancel and on_abandon is not None:
            on_abandon()
        return _ANSWERED


class _Events:
    """The answer of ``/generate_stream``: the first response decides its status, each is an event in it."""

    def __init__(self, exchange: Exchange, decoupled: bool, encode: Encode) -> None:
        self._exchange = exchange
        self._decoupled = decoupled
        self._encode = encode
        self._outcome = _ANSWERED

    def __call__(self, response: InferResponse) -> Outcome:
        exchange = self._exchange
        if exchange.abandoned or exchange.data is not None:
            return _ANSWERED
        written = None if _is_only_end(response, self._decoupled) else _write(response, self._encode)
        stream = exchange.stream or exchange.begin_stream(200 if written is None else written.status, _EVENTS)
        if written is not None:
            stream.write(b"data: %b\n\n" % written.body)
            if written.outcome is _FAILED:
                self._outcome = _FAILED
        if response.final:
            exchange.on_abandon = None
            stream.end()
        return self._outcome


def _is_only_end(response: InferResponse, decoupled: bool) -> bool:
    """Whether a decoupled model says no more than that it has finished."""
    return decoupled and response.final and not response.columns and response.error is None and not response.parameters


def _write(response: InferResponse, encode: Encode) -> _Written:
    error = response.error
    if error is not None:
        return _Written(STATUS[error.code], error_body(error.message), _ANSWERED)
    try:
        return _Written(200, encode(response), _ANSWERED)
    except ServeError as unfit:
        return _Written(STATUS[unfit.code], error_body(unfit.message), _FAILED)
    except Exception:
        logger.exception("an answer of model '%s' could not be written", response.model_name)
        text = f"the answer of model '{response.model_name}' could not be written; see the log"
        return _Written(500, error_body(text), _FAILED)


async def _respond_later(exchange: Exchange, response: InferResponse, encode: Encode) -> None:
    """Have a thread write the one response, and say what became of it."""
    answered = False
    try:
        encoded = await aside(partial(encode, response))
        with sending(exchange):
            exchange.respond(200, (encoded,))
        answered = True
    finally:
        if response.settled is not None:
            response.settled(answered)
