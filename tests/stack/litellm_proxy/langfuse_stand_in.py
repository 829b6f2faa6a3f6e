"""In Langfuse's place: takes traces as OTLP over HTTP on the port given, and prints each span as a line of JSON.

Run with the Python of .venvs/litellm, which knows the protocol.
"""

import base64
import gzip
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Receiver(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        keys = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                values = {each.key: self._value(each.value) for each in span.attributes}
                line = json.dumps({"path": self.path, "keys": keys, "name": span.name, **values})
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
        self._answer(200)

    @staticmethod
    def _value(value):
        kind = value.WhichOneof("value")
        return (
            str(getattr(value, kind))
            if kind in ("array_value", "kvlist_value")
            else getattr(value, kind or "bool_value")
        )

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing but spans on the output."""


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
