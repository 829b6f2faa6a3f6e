"""One HTTP request as it is sent to both servers, and what of the answer is compared."""

from __future__ import annotations

import gzip
import http.client
import json
import zlib
from dataclasses import dataclass, field
from typing import Any

DEADLINE_SECONDS = 4.0
NO_ANSWER = {"status": "no answer"}

COMPARED = ("content-type", "content-encoding", "inference-header-content-length", "accept-encoding", "allow")
"""Headers that clients read. Which encoding an answer has is compared; its bytes are read first."""


@dataclass(frozen=True)
class HttpStep:
    """One request over HTTP."""

    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def send(self, servers: Any) -> dict[str, Any]:
        """Status, headers and body of the answer of one server, ready to be compared."""
        try:
            response, body = servers.http.ask(self)
        except (OSError, http.client.HTTPException):
            servers.http.close()
            return dict(NO_ANSWER)
        headers = {name: response.headers[name] for name in COMPARED if response.headers[name] is not None}
        return {"status": response.status, "headers": _kept(headers), **_read(headers, body)}


class HttpClient:
    """A connection to one server, opened anew after it was lost."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)

    def ask(self, step: HttpStep) -> tuple[http.client.HTTPResponse, bytes]:
        self._connection.putrequest(step.method, step.path, skip_accept_encoding=True)
        for name, value in step.headers.items():
            self._connection.putheader(name, value)
        if "Transfer-Encoding" not in step.headers and (step.body or step.method in ("POST", "PUT", "PATCH")):
            self._connection.putheader("Content-Length", str(len(step.body)))
        self._connection.endheaders(step.body or None)
        response = self._connection.getresponse()
        return response, response.read()

    def close(self) -> None:
        self._connection.close()


def _kept(headers: dict[str, str]) -> dict[str, str]:
    # How long the JSON is depends on how numbers are printed; that it is said at all does not.
    length = "inference-header-content-length"
    return {**headers, length: "given"} if length in headers else headers


def _without_times(document: Any) -> Any:
    """``document`` with durations as whether there were any, and points in time as whether there is one."""
    if isinstance(document, list):
        return [_without_times(item) for item in document]
    if isinstance(document, dict):
        times = ("ns", "last_inference")
        return {key: value > 0 if key in times else _without_times(value) for key, value in document.items()}
    return document


def _read(headers: dict[str, str], body: bytes) -> dict[str, Any]:
    """The parts of a body: JSON, binary tensors, events, or bytes that are none of them."""
    encoding = headers.get("content-encoding")
    if encoding == "gzip":
        body = gzip.decompress(body)
    elif encoding == "deflate":
        body = zlib.decompress(body)
    length = headers.get("inference-header-content-length")
    if length is not None:
        return {"json": json.loads(body[: int(length)]), "binary": body[int(length) :].hex()}
    if headers.get("content-type", "").startswith("text/event-stream"):
        events = [event for event in body.decode().split("\n\n") if event]
        return {"events": [json.loads(event.removeprefix("data: ")) for event in events]}
    try:
        document = json.loads(body) if body else None
        if isinstance(document, dict) and "model_stats" in document:
            document = _without_times(document)
        return {"json": document} if body else {}
    except ValueError:
        return {"bytes": body.decode("utf-8", "backslashreplace")}


def get(path: str, **headers: str) -> HttpStep:
    return HttpStep("GET", path, headers=headers)


def post(path: str, body: Any = b"", headers: dict[str, str] | None = None) -> HttpStep:
    """``body`` is sent as it is, or as JSON if it is not bytes."""
    return HttpStep("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), headers or {})
