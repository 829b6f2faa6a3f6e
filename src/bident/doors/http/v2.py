"""The v2 routes: what each one asks of the engine and how its answer looks.

One method a route; the routes, their statuses and their JSON are Triton's (``http_server.cc`` and
the protocol extensions' documents).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import orjson

from bident.doors import reports
from bident.doors.access import Api
from bident.doors.answers import takes_long
from bident.doors.aside import READ_HERE, aside
from bident.doors.forwarding import Forwarding
from bident.doors.http import compat
from bident.doors.http.compression import SUPPORTED, choose, compress, is_large, pack, unpack
from bident.doors.http.exchange import JSON, Buffer, Exchange
from bident.doors.http.generate import Generate
from bident.doors.http.routes import Routes
from bident.doors.http.traced import begin_trace, sending
from bident.doors.http.v2_answering import JSON_ANSWER, Answering
from bident.doors.http.v2_repository import RepositoryRoutes
from bident.doors.http.v2_request import is_long, parse, parse_raw
from bident.doors.http.v2_response import encode, encode_json
from bident.doors.http.v2_settings import SettingsRoutes
from bident.doors.http.v2_shared_memory import SharedMemoryRoutes
from bident.doors.shared_tensors import COPY_HERE, bytes_to_read, read_inputs
from bident.engine.engine import Engine
from bident.engine.servable import Servable
from bident.errors import Code, ServeError, invalid_arg
from bident.model import pbtxt
from bident.wire.infer import InferRequest, InferResponse, Outcome

logger = logging.getLogger("bident.http")

_ANSWERED = Outcome.ANSWERED
_OCTETS = b"application/octet-stream"
_JSON_ALONE = b"application/json"
"""The ``Accept`` of a client that can read nothing else, such as a no-code tool; libraries add ``*/*``."""


class V2:
    """Serves the v2 protocol of one engine."""

    def __init__(
        self,
        engine: Engine,
        *,
        name: str,
        version: str,
        max_input_bytes: int,
        forwarding: Forwarding | None = None,
        compatible: bool = False,
    ) -> None:
        """``name`` and ``version`` are what ``/v2`` says of the server; ``forwarding``: which headers models see.

        ``compatible``: be as Triton is where that is worse (``compat`` says in what).
        """
        self._compatible = compatible
        self._forwarding = forwarding
        self._engine = engine
        self._memory = engine.shared_memory
        self._tracing = engine.tracing
        self._max_input_bytes = max_input_bytes
        self._metadata = orjson.dumps(reports.server_metadata(name, version))

    def routes(self) -> Routes:
        """All routes of this door."""
        routes = compat.CompatibleRoutes() if self._compatible else Routes()
        routes.add("GET", "/v2", self.server_metadata, api=Api.METADATA)
        routes.add("GET", "/v2/health/live", self.live, api=Api.HEALTH)
        routes.add("GET", "/v2/health/ready", self.ready, api=Api.HEALTH)
        routes.add("GET", "/v2/models/stats", self.stats, defaults=("", ""), api=Api.STATISTICS)
        for model, version in (("/v2/models/{}", ("",)), ("/v2/models/{}/versions/{#}", ())):
            routes.add("GET", model, self.model_metadata, defaults=version, api=Api.METADATA)
            routes.add("GET", f"{model}/ready", self.model_ready, defaults=version, api=Api.HEALTH)
            routes.add("GET", f"{model}/config", self.model_config, defaults=version, api=Api.MODEL_CONFIG)
            routes.add("GET", f"{model}/stats", self.stats, defaults=version, api=Api.STATISTICS)
            routes.add("POST", f"{model}/infer", self.infer, binary=True, defaults=version, api=Api.INFERENCE)
        Generate(self._engine, compatible=self._compatible, forwarding=self._forwarding).routes_into(routes)
        SharedMemoryRoutes(self._engine).routes_into(routes)
        RepositoryRoutes(self._engine).routes_into(routes)
        SettingsRoutes(self._engine).routes_into(routes)
        return routes

    # Health and metadata

    def live(self, exchange: Exchange) -> None:
        """200 while the process can answer."""
        self._engine.check_running()
        exchange.respond(200)

    async def ready(self, exchange: Exchange) -> None:
        """200 when every model that should be ready is, else 400 (as Triton has it)."""
        self._engine.check_running()
        exchange.respond(200 if await self._engine.check_ready() else 400)

    def server_metadata(self, exchange: Exchange) -> None:
        """Name, version and extensions."""
        exchange.respond_json(self._metadata)

    def model_metadata(self, exchange: Exchange) -> None:
        """Inputs, outputs and versions of a model."""
        name, version = exchange.params
        exchange.respond_json(orjson.dumps(reports.model_metadata(self._engine, name, version)))

    async def model_ready(self, exchange: Exchange) -> None:
        """200 when the model answers requests, else 400."""
        if await self._engine.check_model_ready(*exchange.params):
            exchange.respond(200)
        else:
            exchange.respond_error(400, "Model version not ready")

    def model_config(self, exchange: Exchange) -> None:
        """The completed configuration."""
        servable = self._engine.model(*exchange.params)
        exchange.respond_json(orjson.dumps(pbtxt.to_dict(servable.config.proto)))

    async def stats(self, exchange: Exchange) -> None:
        """The figures of one model, or of all."""
        name, version = exchange.params
        exchange.respond_json(orjson.dumps(await reports.statistics(self._engine, name, version)))

    # Inference

    def infer(self, exchange: Exchange) -> Awaitable[None] | None:
        """Queue the request; :func:`_reply` writes the answer when it comes."""
        name, version = exchange.params
        servable = self._engine.servable(name, version)
        if servable.config.decoupled:
            raise ServeError(
                Code.UNSUPPORTED,
                "HTTP end point doesn't support models with decoupled transaction policy: POST its inputs to "
                f"/v2/models/{name}/generate_stream, which answers as a stream of events",
            )
        if b"content-encoding" in exchange.headers:
            return self._infer_packed(exchange)
        body = exchange.body
        model = (name, version)
        raw_length = exchange.headers.get(b"inference-header-content-length")
        header_length = None if raw_length is None else _header_length(raw_length, len(body))
        read = compat.parse if self._compatible else parse
        if header_length == 0 or (not body and self._compatible):
            request, answering = parse_raw(model, servable.config, body, exchange.received_ns)
            if exchange.headers.get(b"accept") == _JSON_ALONE and not self._compatible:
                answering = JSON_ANSWER
        elif len(body) > READ_HERE and is_long(body, header_length, READ_HERE):
            return self._infer_long(
                exchange, partial(read, model, body, header_length, exchange.received_ns, self._memory)
            )
        else:
            request, answering = read(model, body, header_length, exchange.received_ns, self._memory)
        if answering.shared:
            return self._infer_shared(exchange, servable, request, answering)
        self._queue(exchange, servable, request, answering)
        return None

    def _queue(self, exchange: Exchange, servable: Servable, request: InferRequest, answering: Answering) -> None:
        if self._forwarding is not None:
            self._forwarding.apply(request, exchange.sent_headers or exchange.headers)
        request.reply = partial(_reply, exchange, servable, answering)
        if self._tracing.is_on:
            begin_trace(self._tracing, exchange, request)
        servable.infer(request)
        if exchange.data is None:
            exchange.on_abandon = partial(self._engine.cancel, request)

    async def _infer_long(self, exchange: Exchange, read: Callable[[], tuple[InferRequest, Answering]]) -> None:
        """Have a thread read the body, then go on with the model as it is by then."""
        request, answering = await aside(read)
        if exchange.abandoned:
            return
        servable = self._engine.servable(*exchange.params)
        if answering.shared:
            waiting = self._infer_shared(exchange, servable, request, answering)
            if waiting is not None:
                await waiting
        else:
            self._queue(exchange, servable, request, answering)

    def _infer_shared(
        self, exchange: Exchange, servable: Servable, request: InferRequest, answering: Answering
    ) -> Awaitable[None] | None:
        """Read the inputs that are in shared memory, then queue the request."""

        def read() -> tuple[InferRequest, Answering]:
            read_inputs(answering.shared, servable.config.inputs)
            return request, replace(answering, shared=())

        if bytes_to_read(answering.shared) > COPY_HERE:
            return self._infer_long(exchange, read)
        self._queue(exchange, servable, *read())
        return None

    async def _infer_packed(self, exchange: Exchange) -> None:
        """Unpack the body, then go on as if it had come like that."""
        headers = dict(exchange.headers)
        encoding = headers.pop(b"content-encoding").strip().lower()
        if encoding not in (b"", b"identity"):
            try:
                exchange.body = await unpack(encoding, exchange.body, self._max_input_bytes)
            except ServeError as error:
                if error.code is not Code.UNSUPPORTED:
                    raise
                exchange.respond_error(501, error.message, extra=[(b"Accept-Encoding", SUPPORTED)])
                return
        exchange.headers = headers
        if not exchange.abandoned:
            waiting = self.infer(exchange)
            if waiting is not None:
                await waiting


def _reply(exchange: Exchange, servable: Servable, answering: Answering, response: InferResponse) -> Outcome:
    """Encode and send the answer of an infer request."""
    exchange.on_abandon = None  # also ends the circle exchange -> request -> reply -> exchange
    if exchange.abandoned:
        return _ANSWERED
    if response.error is not None:
        exchange.respond_failure(response.error)
        return _ANSWERED
    try:
        if answering is JSON_ANSWER and response.parameters is None and b"accept-encoding" not in exchange.headers:
            text = encode_json(response, servable)
            if text is not None:
                exchange.respond_json(text)
                return _ANSWERED
        elif not takes_long(response, answering.want):
            _respond(exchange, *encode(response, answering, servable))
            return _ANSWERED
        exchange.respond_later(_reply_later(exchange, servable, answering, response))
        return Outcome.LATER
    except ServeError as error:
        exchange.respond_failure(error)
    except Exception:
        logger.exception("an answer of model '%s' could not be written", response.model_name)
        exchange.respond_error(500, f"the answer of model '{response.model_name}' could not be written; see the log")
    return Outcome.FAILED


async def _reply_later(exchange: Exchange, servable: Servable, answering: Answering, response: InferResponse) -> None:
    """Have a thread encode the answer, and say what became of it."""
    answered = False
    try:
        encoded = await aside(partial(encode, response, answering, servable))
        with sending(exchange):
            _respond(exchange, *encoded)
        answered = True
    finally:
        if response.settled is not None:
            response.settled(answered)


def _respond(exchange: Exchange, document: bytes, binary: Sequence[Buffer]) -> None:
    pieces = (document, *binary)
    content_type, extra = JSON, []
    if binary:
        content_type = _OCTETS
        extra.append((b"Inference-Header-Content-Length", b"%d" % len(document)))
    encoding = choose(exchange.headers.get(b"accept-encoding", b""))
    if not encoding:
        exchange.respond(200, pieces, content_type, extra)
        return
    extra.append((b"Content-Encoding", encoding))
    if is_large(pieces):
        exchange.respond_later(_respond_packed(exchange, encoding, pieces, content_type, extra))
    else:
        exchange.respond(200, (compress(encoding, pieces),), content_type, extra)


async def _respond_packed(
    exchange: Exchange,
    encoding: bytes,
    pieces: Sequence[Buffer],
    content_type: bytes,
    extra: Sequence[tuple[bytes, bytes]],
) -> None:
    exchange.respond(200, (await pack(encoding, pieces),), content_type, extra)


def _header_length(raw: bytes, size: int) -> int:
    text = raw.decode("latin-1").strip()
    try:
        length = int(text) if text.lstrip("-").isdigit() and len(text) < 20 else -1
    except ValueError:
        length = -1
    if not 0 <= length <= size:
        raise invalid_arg(f"inference header size should be in range (0, {size}), got: {text}")
    return length
