"""One HTTP connection to a server, on the standard library so that commands start quickly."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar
from urllib.parse import urlsplit

from bident.client.credentials import Credentials
from bident.errors import Code, ServeError, invalid_arg

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


class Connection:
    """One server, over one kept-alive connection. Failures are ServeErrors that say what to do."""

    protocol: ClassVar[str]
    """What is spoken over it, for errors."""
    example: ClassVar[str]
    """Such a server's address."""
    flag: ClassVar[str]
    """The option that says where the server is."""
    cures: ClassVar[Mapping[int, str]] = {401: "; commands take it from --api-key or BIDENT_API_KEY"}
    """What a person can do about a status, said after the server's words."""

    def __init__(self, url: str, timeout: float = 300.0, credentials: Credentials | None = None) -> None:
        """``url``: ``http(s)://host:port[/prefix]``; a bare ``host:port`` is http. ``timeout`` in seconds.

        Without ``credentials`` those of the environment are shown.
        """
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https") or not host or any(sign <= " " or sign == "\x7f" for sign in host):
            raise invalid_arg(f"'{url}' is not a server's address; expected something like {self.example}")
        try:
            port = parts.port
        except ValueError:
            raise invalid_arg(f"'{url}' has no valid port; expected something like {self.example}") from None
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.host = host
        self._prefix = parts.path.rstrip("/")
        self.credentials = credentials or Credentials.from_environment()
        if parts.scheme == "https":
            context = self.credentials.context()
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=timeout, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=timeout)

    def exchange(
        self, method: str, path: str, body: bytes | BinaryIO | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """One request and its answer, whatever its status. Raises UNAVAILABLE when nobody answers."""
        with self._connected():
            self._request(method, path, body, headers or {})
            response = self._connection.getresponse()
            return Reply(response.status, response.headers, response.read())

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send ``body`` as JSON, return the JSON answer. Raises what the server refuses."""
        return self._json(self._send(method, path, body))

    def _request(self, method: str, path: str, body: Any, headers: dict[str, str]) -> None:
        self._connection.request(method, self._prefix + path, body, {**self.credentials.headers, **headers})

    def _lines(self, path: str, body: Any, kind: str, method: str = "POST") -> Iterator[Reply]:
        """The lines of an answer of the content type ``kind`` to ``body`` as JSON, as they come.

        Raises what the server refuses. Whoever stops listening closes the connection, which ends the request.
        """
        try:
            with self._connected():
                self._request(method, path, json.dumps(body).encode(), {"Content-Type": "application/json"})
                response = self._connection.getresponse()
                if response.status >= 400 or not response.headers.get("Content-Type", "").startswith(kind):
                    reply = Reply(response.status, response.headers, response.read())
                    self.check(reply)
                    raise self._stranger(reply)
                for line in response:
                    yield Reply(response.status, response.headers, line)
        finally:
            self._connection.close()

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
                f"start one with 'bident up', or say where it is with {self.flag}",
            ) from None

    def _broken_off(self, what: str) -> ServeError:
        self._connection.close()
        return ServeError(Code.UNAVAILABLE, f"the server at {self.url} {what}; its log ('bident logs') may say why")

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

    @classmethod
    def _refusal(cls, status: int, message: str) -> ServeError:
        # Triton's ends and a request's missing id say nothing to a person.
        message = message.removeprefix("[request id: <id_unknown>] ").rstrip("; \n")
        return ServeError(_CODES.get(status, Code.INTERNAL), message + cls.cures.get(status, ""))

    def _json(self, reply: Reply) -> Any:
        try:
            return json.loads(reply.body)
        except ValueError:
            raise self._stranger(reply) from None

    def _stranger(self, reply: Reply) -> ServeError:
        return ServeError(
            Code.INTERNAL,
            f"{self.url} answered {reply.status} with something that is not {self.protocol}: another kind of server "
            f"listens there; say where yours is with {self.flag}",
        )


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
