"""One server's public v2 HTTP API, on the standard library so that commands start quickly."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from bident.client.credentials import Credentials
from bident.errors import Code, ServeError, invalid_arg

_EVENTS = "text/event-stream"
_EXAMPLE = "http://127.0.0.1:8000"
_UNAUTHENTICATED = 401
_FORBIDDEN = 403
_CODES = {
    400: Code.INVALID_ARG,
    404: Code.NOT_FOUND,
    501: Code.UNSUPPORTED,
    503: Code.UNAVAILABLE,
}


@dataclass(frozen=True)
class Reply:
    """An HTTP answer, read to its end."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Client:
    """One server, over one kept-alive connection. Failures are ServeErrors that say what to do."""

    def __init__(self, url: str, timeout: float = 300.0, credentials: Credentials | None = None) -> None:
        """``url``: ``http(s)://host:port[/prefix]``; a bare ``host:port`` is http. ``timeout`` in seconds.

        Without ``credentials`` those of the environment are shown.
        """
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise invalid_arg(f"'{url}' is not a server's address; expected something like {_EXAMPLE}")
        try:
            port = parts.port
        except ValueError:
            raise invalid_arg(f"'{url}' has no valid port; expected something like {_EXAMPLE}") from None
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.host = parts.hostname
        self._prefix = parts.path.rstrip("/")
        self.credentials = credentials or Credentials.from_environment()
        if parts.scheme == "https":
            context = self.credentials.context()
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, port, timeout=timeout, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, port, timeout=timeout)

    def exchange(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """One request and its answer, whatever its status. Raises UNAVAILABLE when nobody answers."""
        with self._connected():
            self._request(method, path, body, headers or {})
            response = self._connection.getresponse()
            return Reply(response.status, response.headers, response.read())

    def _request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> None:
        self._connection.request(method, self._prefix + path, body, {**self.credentials.headers, **headers})

    def events(self, path: str, body: Any) -> Iterator[dict[str, Any]]:
        """POST ``body`` as JSON and give the JSON of each event of the answer, as it comes.

        Raises what the server refuses, and an error that comes as an event. Whoever stops listening
        closes the connection, which ends the request.
        """
        try:
            with self._connected():
                self._request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
                response = self._connection.getresponse()
                if not response.headers.get("Content-Type", "").startswith(_EVENTS):
                    reply = Reply(response.status, response.headers, response.read())
                    self.check(reply)
                    raise self._stranger(reply)
                for line in response:
                    if line.startswith(b"data:"):
                        yield self._event(Reply(response.status, response.headers, line[len(b"data:") :]))
        finally:
            self._connection.close()

    def _event(self, reply: Reply) -> dict[str, Any]:
        event: dict[str, Any] = self._json(reply)
        if set(event) == {"error"}:
            raise self._refusal(reply.status, str(event["error"]))
        return event

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Make what goes wrong with the connection an error that says what to do."""
        try:
            yield
        except TimeoutError:
            raise self._broken_off("did not answer in time") from None
        except (http.client.HTTPException, ConnectionResetError, BrokenPipeError) as error:
            raise self._broken_off(f"broke the connection off ({str(error) or type(error).__name__})") from None
        except OSError as error:
            self._connection.close()
            if (reason := _tls_trouble(error)) is not None:
                raise ServeError(Code.UNAVAILABLE, f"no TLS connection with {self.url}: {reason}") from None
            raise ServeError(
                Code.UNAVAILABLE,
                f"no server answers at {self.url} ({error.strerror or error}); "
                "start one with 'bident up', or say where it is with --url",
            ) from None

    def _broken_off(self, what: str) -> ServeError:
        self._connection.close()
        return ServeError(Code.UNAVAILABLE, f"the server at {self.url} {what}; its log ('bident logs') may say why")

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send ``body`` as JSON, return the JSON answer. Raises what the server refuses."""
        return self._json(self._send(method, path, body))

    def _send(self, method: str, path: str, body: Any) -> Reply:
        encoded = None if body is None else json.dumps(body).encode()
        reply = self.exchange(method, path, encoded, {"Content-Type": "application/json"} if encoded else {})
        self.check(reply)
        return reply

    def check(self, reply: Reply) -> None:
        """Raise the error that ``reply`` carries, if it is one."""
        if reply.status < 400:
            return
        try:
            message = str(self._json(reply)["error"])
        except (KeyError, TypeError):
            raise self._stranger(reply) from None
        raise self._refusal(reply.status, message)

    @staticmethod
    def _refusal(status: int, message: str) -> ServeError:
        # Triton's ends and a request's missing id say nothing to a person.
        message = message.removeprefix("[request id: <id_unknown>] ").rstrip("; \n")
        if status == _UNAUTHENTICATED:
            message += "; commands take it from --api-key or BIDENT_API_KEY"
        elif status == _FORBIDDEN:
            message += "; commands send it with bident --header 'NAME: VALUE'"
        return ServeError(_CODES.get(status, Code.INTERNAL), message)

    def _json(self, reply: Reply) -> Any:
        try:
            return json.loads(reply.body)
        except ValueError:
            raise self._stranger(reply) from None

    def _stranger(self, reply: Reply) -> ServeError:
        return ServeError(
            Code.INTERNAL,
            f"{self.url} answered {reply.status} with something that is not the v2 protocol: another kind of server "
            "listens there; say where yours is with --url",
        )

    def live(self) -> bool:
        """Whether a server answers at all."""
        try:
            return self.exchange("GET", "/v2/health/live").status == 200
        except ServeError:
            return False

    def ready(self) -> bool:
        """Whether the server says that it is ready; False also when nobody answers."""
        try:
            return self.exchange("GET", "/v2/health/ready").status == 200
        except ServeError:
            return False

    def index(self) -> list[dict[str, Any]]:
        """The repository index: name, and version, state and reason of what was ever loaded."""
        entries: list[dict[str, Any]] = self.call("POST", "/v2/repository/index", {})
        return entries

    def metadata(self, model: str, version: str = "") -> dict[str, Any]:
        """A model's name, versions, platform, inputs and outputs."""
        found: dict[str, Any] = self.call("GET", model_path(model, version))
        return found

    def config(self, model: str, version: str = "") -> dict[str, Any]:
        """A model's configuration, completed."""
        found: dict[str, Any] = self.call("GET", model_path(model, version) + "/config")
        return found

    def stats(self) -> list[dict[str, Any]]:
        """Statistics of every loaded version."""
        found: list[dict[str, Any]] = self.call("GET", "/v2/models/stats")["model_stats"]
        return found

    def load(self, model: str) -> None:
        """Load, or reload, a model."""
        self._send("POST", f"/v2/repository/models/{quote(model, safe='')}/load", {})

    def unload(self, model: str) -> None:
        """Unload a model."""
        self._send("POST", f"/v2/repository/models/{quote(model, safe='')}/unload", {})


def _tls_trouble(error: OSError) -> str | None:
    """Why TLS could not be agreed on, and the cure; None where that was not the matter."""
    reason = getattr(error, "reason", None)  # an ssl.SSLError has one: to ask for its type would import ssl
    if not isinstance(reason, str):
        return None
    if reason == "CERTIFICATE_VERIFY_FAILED":
        why = getattr(error, "verify_message", reason)
        return f"its certificate is not to be believed ({why}); name the authority that signed it with --ca FILE"
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"):
        return "it speaks no TLS; use http:// instead of https://"
    return reason.replace("_", " ").lower()


def model_path(model: str, version: str = "") -> str:
    """The path of a model, or of one version of it."""
    return f"/v2/models/{quote(model, safe='')}" + (f"/versions/{version}" if version else "")
