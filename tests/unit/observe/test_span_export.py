"""Spans on their way out: what is sent, who may be down, and that nobody waits."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.ports import free_port
from bident.observe.span_export import SpanExport
from bident.observe.span_settings import SpanSettings
from bident.wire.trace_context import TraceContext
from otlp_receiver import OtlpReceiver


def put(export: SpanExport, name: str = "s", **said: object) -> None:
    export.put(TraceContext.first(), name, 1, 2, attributes={"k": 1}, **said)  # type: ignore[arg-type]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What our own log has by now."""
    return [record.getMessage() for record in caplog.records if record.name == "bident.trace"]


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as made:
        yield made


def test_what_is_left_is_sent_at_the_end(receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20abc,x-langfuse-ingestion-version=4")
    export = SpanExport(SpanSettings(receiver.url, {"deployment.environment.name": "test"}), "bident-tensor")
    client = TraceContext(5, 6, state="a=b")
    export.put(client.below(), "s", 1, 2, attributes={"k": [1, 2]}, events=[("e", 1)], error="why", is_entry=True)
    export.close(10)

    (span,) = receiver.spans
    assert (span.name, int(span.trace_id, 16), int(span.parent_id, 16)) == ("s", 5, 6)
    assert (span.attributes, span.events, span.failed, span.message) == ({"k": [1, 2]}, ["e"], True, "why")
    assert (span.start_ns, span.end_ns) == (1, 2)
    assert span.resource["service.name"] == "bident-tensor"
    assert span.resource["deployment.environment.name"] == "test"
    (headers,) = receiver.headers
    assert headers["authorization"] == "Basic abc"
    assert headers["x-langfuse-ingestion-version"] == "4"


@pytest.mark.parametrize(
    ("variables", "given", "expected"),
    [
        ({"OTEL_SERVICE_NAME": "mine"}, {}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=ours"}, {}, "ours"),
        ({"OTEL_SERVICE_NAME": "mine"}, {"service.name": "yours"}, "yours"),
    ],
)
def test_who_names_the_server(
    receiver: OtlpReceiver,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    given: dict[str, str],
    expected: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    export = SpanExport(SpanSettings(receiver.url, given), "bident-text")
    put(export)
    export.close(10)

    assert receiver.spans[0].resource["service.name"] == expected


def test_too_many_events_are_the_first_ones_and_the_last(receiver: OtlpReceiver) -> None:
    export = SpanExport(SpanSettings(receiver.url), "s")
    put(export, events=[(str(number), number) for number in range(1000)])
    export.close(10)

    events = receiver.spans[0].events
    assert (len(events), events[0], events[126], events[127]) == (128, "0", "126", "999")


def test_who_is_down_costs_one_warning_and_no_time_and_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    export = SpanExport(SpanSettings(f"http://127.0.0.1:{port}/v1/traces", queue=4, delay_ms=1, batch=1), "s")
    began = time.monotonic()
    for _ in range(1000):
        if export.has_room(1):
            put(export)
    assert time.monotonic() - began < 1.0
    OtlpReceiver.wait(lambda: len(said(caplog)) == 2, "warnings")
    with OtlpReceiver(port=port) as receiver:
        receiver.wait(lambda: receiver.spans)
        export.close(10)

    assert len(receiver.spans) <= 5  # those that waited, and the one under way
    one, other, last = sorted(said(caplog))
    assert re.fullmatch(r"99\d traces were dropped: they came faster than their spans could be sent", one)
    assert other.startswith(f"spans are not taken by {receiver.url}, and will be dropped: ")
    assert last == "traces come faster than spans can be sent: some are dropped"


def test_the_end_does_not_wait_for_who_is_down() -> None:
    export = SpanExport(SpanSettings(f"http://127.0.0.1:{free_port()}/v1/traces"), "s")
    put(export)
    began = time.monotonic()
    export.close(0.1)

    assert time.monotonic() - began < 1.0


def test_one_that_ends_late_is_not_heard_by_the_next(caplog: pytest.LogCaptureFixture) -> None:
    ended = SpanExport(SpanSettings(f"http://127.0.0.1:{free_port()}/v1/traces"), "s")
    ended.close(10)
    caplog.clear()
    with OtlpReceiver() as receiver:
        export = SpanExport(SpanSettings(receiver.url, delay_ms=1, batch=1), "s")
        logging.getLogger("opentelemetry.exporter.otlp.proto.http").warning("Exporter already shutdown")
        put(export)
        receiver.wait(lambda: receiver.spans)
        export.close(10)

    assert said(caplog) == []


def test_credentials_that_are_wrong_are_said_once_and_so_is_that_spans_are_taken_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "bident.trace")
    with OtlpReceiver(authorization="Basic right") as receiver:
        export = SpanExport(SpanSettings(receiver.url, delay_ms=1, batch=1), "s")
        put(export)
        receiver.wait(lambda: len(said(caplog)) == 2, "a warning")
        receiver.authorization = ""
        receiver.wait(lambda: put(export) or receiver.spans)
        export.close(10)

    start, warning, end = said(caplog)
    assert start == f"spans go to {receiver.url}"
    assert warning.startswith(f"spans are not taken by {receiver.url}, and will be dropped: ")
    assert "401" in warning
    assert end == f"spans are taken again by {receiver.url}"


def test_the_state_of_other_tracers_may_be_anything(receiver: OtlpReceiver) -> None:
    export = SpanExport(SpanSettings(receiver.url), "s")
    export.put(TraceContext(5, 6, state="no state;;").below(), "s", 1, 2, attributes={})
    export.close(10)

    assert [span.name for span in receiver.spans] == ["s"]


class Odd(BaseHTTPRequestHandler):
    """Answers what no receiver of spans does: by the path, a redirection or a body without an end."""

    def do_POST(self) -> None:
        self.send_response(307 if self.path == "/moved" else 200)
        self.send_header("location", "https://elsewhere.example/v1/traces")
        self.end_headers()
        with contextlib.suppress(OSError):
            while self.path == "/endless":
                self.wfile.write(b"x" * 65536)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("path", "why"),
    [("/moved", "leads to 'https://elsewhere.example/v1/traces'"), ("/endless", "longer than 65536 bytes")],
)
def test_who_answers_but_takes_no_spans_is_named(path: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        export = SpanExport(SpanSettings(f"http://127.0.0.1:{server.server_port}{path}"), "s")
        put(export)
        export.close(10)
        server.shutdown()

    (warning,) = said(caplog)
    assert "spans are not taken by" in warning
    assert why in warning
