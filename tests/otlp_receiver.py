"""Takes what servers export by OpenTelemetry's protocol, as a collector or Langfuse does."""

from __future__ import annotations

import base64
import gzip
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

_DEADLINE_SECONDS = 20.0
_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class Received:
    """One span."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    events: list[str]
    failed: bool
    message: str
    start_ns: int
    end_ns: int
    resource: dict[str, Any] = field(repr=False)


class OtlpReceiver:
    """A server on 127.0.0.1, a context manager; answers 401 where ``authorization``, if there is one, is not sent."""

    def __init__(self, authorization: str = "", port: int = 0) -> None:
        self.spans: list[Received] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.bodies: list[bytes] = []
        self.authorization = authorization
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(200, b'{"status":"OK","version":"3.200.0"}', "application/json")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if receiver.authorization and self.headers["authorization"] != receiver.authorization:
                    self._answer(401, b'{"message":"Invalid credentials"}', "application/json")
                    return
                receiver._take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                self._answer(200, ExportTraceServiceResponse().SerializeToString(), "application/x-protobuf")

            def log_message(self, *_: Any) -> None:
                pass

            def _answer(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.host = f"http://127.0.0.1:{self._server.server_port}"
        self.url = f"{self.host}/v1/traces"

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]

    @staticmethod
    def wait(condition: Callable[[], Any], what: str = "a span") -> None:
        """Until ``condition`` holds; AssertionError naming ``what`` if it does not in time."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"after {_DEADLINE_SECONDS:g} s still not: {what}"
            time.sleep(_POLL_SECONDS)

    def below(self, parent: str) -> list[Received]:
        """The spans right below the one with this id, as they began."""
        return sorted((span for span in self.spans if span.parent_id == parent), key=lambda span: span.start_ns)

    def tree(self, parent: str) -> dict[str, Any]:
        """The names of all spans below the one with this id."""
        return {span.name: self.tree(span.span_id) for span in self.below(parent)}

    def says(self, text: str) -> bool:
        """Whether ``text`` is anywhere in what was sent."""
        return any(text.encode() in body for body in self.bodies)

    def __enter__(self) -> OtlpReceiver:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.paths.append(path)
        self.headers.append(headers)
        self.bodies.append(body)
        for resource in _read(headers, body).resource_spans:
            about = _attributes(resource.resource.attributes)
            self.spans += [_received(span, about) for scope in resource.scope_spans for span in scope.spans]


def _read(headers: dict[str, str], body: bytes) -> ExportTraceServiceRequest:
    """The two encodings of OTLP over HTTP; the JSON one has ids in hexadecimal, where protobuf's own has base64."""
    if "json" not in headers["content-type"]:
        return ExportTraceServiceRequest.FromString(body)
    document = re.sub(
        r'"(traceId|spanId|parentSpanId)":\s*"([0-9a-f]+)"',
        lambda found: f'"{found[1]}": "{base64.b64encode(bytes.fromhex(found[2])).decode()}"',
        body.decode(),
    )
    return json_format.Parse(document, ExportTraceServiceRequest())


def _received(span: Any, resource: dict[str, Any]) -> Received:
    return Received(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        _attributes(span.attributes),
        [event.name for event in span.events],
        span.status.code == span.status.STATUS_CODE_ERROR,
        span.status.message,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        resource,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None


def read_json(span: Received, key: str) -> Any:
    """An attribute that is a JSON document."""
    return json.loads(span.attributes[key])
