"""Sends spans to whoever takes OpenTelemetry's protocol (OTLP over HTTP, as protobuf).

OpenTelemetry's own batch processor and exporter do it, on a thread of theirs: what waits is bounded, and who makes
spans never waits. Imported only when spans are wanted: the packages come with the extra ``otel``.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from time import thread_time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from opentelemetry.util.types import AttributeValue

from bident import __version__
from bident.observe.span_session import SpanSession
from bident.observe.span_settings import SpanSettings
from bident.wire.trace_context import TraceContext

logger = logging.getLogger("bident.trace")

_CLOSE_SECONDS = 5.0
_CLOSE_SECONDS_IF_DOWN = 0.5
"""So long may the end of a server wait for spans to be taken; and where the last ones were not."""
_MOST_SHARE = 0.2
"""So much of its time may the thread compute that sends spans: computing, it keeps requests waiting."""
_SWITCH_SECONDS = 0.0005
"""How long it may keep the event loop waiting for its turn; Python's own 5 ms are seen in the latency of requests."""
_MOST_EVENTS = 128
"""OpenTelemetry's own limit to the events of a span."""
_SERVICE = "service.name"
_THEIR_LOG = logging.getLogger("opentelemetry")
_THEIR_EXPORTER = "opentelemetry.exporter."
_HEARD: ContextVar[Callable[[str], None] | None] = ContextVar("heard", default=None)
"""Who hears what is logged by the exporter at work."""
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_UNSET = Status(StatusCode.UNSET)


class SpanExport:
    """Takes the spans of one server and sends them, in batches, until it is closed."""

    def __init__(self, settings: SpanSettings, service: str) -> None:
        """``service``: the name of the server, where none is given it."""
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
        self._resource = _resource(settings.resource, service)
        self._scope = InstrumentationScope("bident", __version__)
        self._exporter = _Reporting(settings)
        self._most = settings.queue
        self._made = 0
        self._dropped = 0
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=settings.queue,
            schedule_delay_millis=settings.delay_ms,
            max_export_batch_size=settings.batch,
        )
        logger.info("spans go to %s", settings.shown_url)

    def has_room(self, count: int) -> bool:
        """Whether ``count`` more spans can wait. Where not, those of a whole trace are better not made at all."""
        if self._made - self._exporter.taken + count <= self._most:
            return True
        self._dropped += 1
        if self._dropped == 1:
            logger.warning("traces come faster than spans can be sent: some are dropped")
        return False

    def put(
        self,
        place: TraceContext,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        attributes: Mapping[str, AttributeValue],
        events: Sequence[tuple[str, int]] = (),
        error: str | None = None,
        is_entry: bool = False,
    ) -> None:
        """Have a span sent that has ended. Times are nanoseconds since 1970; ``error``: why it failed, maybe "".

        ``is_entry``: what is above, if anything is, belongs to a client. Every span is one of a server, as in Triton.
        """
        self._made += 1
        state = TraceState.from_header([place.state]) if place.state else None
        self._processor.on_end(
            ReadableSpan(
                name,
                context=SpanContext(place.trace_id, place.span_id, False, _SAMPLED, state),
                parent=SpanContext(place.trace_id, place.parent_id, is_entry, _SAMPLED) if place.parent_id else None,
                resource=self._resource,
                attributes=attributes,
                events=[Event(event, timestamp=ns) for event, ns in _kept(events)],
                kind=SpanKind.SERVER,
                status=_UNSET if error is None else Status(StatusCode.ERROR, error or None),
                start_time=start_ns,
                end_time=end_ns,
                instrumentation_scope=self._scope,
            )
        )

    def close(self, seconds: float) -> None:
        """Send what is there, for at most ``seconds``. Blocks."""
        if self._dropped:
            logger.warning("%d traces were dropped: they came faster than their spans could be sent", self._dropped)
        most = _CLOSE_SECONDS_IF_DOWN if self._exporter.is_failing else _CLOSE_SECONDS
        self._exporter.hurry()
        ending = threading.Thread(target=self._processor.shutdown, name="bident last spans", daemon=True)
        ending.start()
        ending.join(min(seconds, most))
        if ending.is_alive():
            logger.warning("the last spans were not taken in time, and are dropped")
            self._exporter.shutdown()


class _Reporting(SpanExporter):
    """Says once that spans are not taken, and once that they are again; OpenTelemetry would say it for every batch."""

    def __init__(self, settings: SpanSettings) -> None:
        self.is_failing = False
        self.taken = 0
        """How many spans do not wait any more."""
        self._is_closing = threading.Event()
        self._url = settings.shown_url
        _THEIR_LOG.addHandler(_COMPLAINTS)
        _THEIR_LOG.propagate = False
        self._otlp = OTLPSpanExporter(endpoint=settings.url, session=SpanSession())

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        before = thread_time()
        heard = _HEARD.set(self._fail)
        try:
            result = self._otlp.export(spans)
        finally:
            _HEARD.reset(heard)
        if result is SpanExportResult.SUCCESS and self.is_failing:
            self.is_failing = False
            logger.info("spans are taken again by %s", self._url)
        self._is_closing.wait((thread_time() - before) * (1 / _MOST_SHARE - 1))
        return result

    def hurry(self) -> None:
        """Nobody waits for requests any more: send what is left at once."""
        self._is_closing.set()

    def shutdown(self) -> None:
        self.is_failing = True  # what it says from now on, that it gives up, has been said
        self._otlp.shutdown()  # type: ignore[no-untyped-call]

    def _fail(self, why: str) -> None:
        if not self.is_failing:
            self.is_failing = True
            logger.warning("spans are not taken by %s, and will be dropped: %s", self._url, why)


class _Complaints(logging.Handler):
    """Gives what an exporter logs to the one that is exporting, on that thread.

    The rest is kept out of the log too: it is about single spans, or comes from exporters that are at their end.
    """

    def emit(self, record: logging.LogRecord) -> None:
        heard = _HEARD.get()
        if heard is not None and record.name.startswith(_THEIR_EXPORTER):
            heard(record.getMessage())


_COMPLAINTS = _Complaints(logging.WARNING)


def _resource(given: Mapping[str, str], service: str) -> Resource:
    """What is said of the server: ``given``, else OpenTelemetry's environment variables, else ``service``."""
    attributes = dict(Resource.create().attributes)
    if str(attributes[_SERVICE]).startswith("unknown_service"):
        attributes[_SERVICE] = service
    return Resource({"service.version": __version__, **attributes, **given})


def _kept(events: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
    """All events, or of too many (a stream has some for each answer) the first ones and the last."""
    return events if len(events) <= _MOST_EVENTS else [*events[: _MOST_EVENTS - 1], events[-1]]
