"""The tensor server's public v2 HTTP API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from bident.client.connection import Connection, Reply
from bident.errors import ServeError

_EVENTS = "text/event-stream"


class Client(Connection):
    """A tensor server."""

    protocol = "the v2 protocol"
    example = "http://127.0.0.1:8000"
    flag = "--url"
    cures = {**Connection.cures, 403: "; commands send it with bident --header 'NAME: VALUE'"}  # noqa: RUF012

    def events(self, path: str, body: Any) -> Iterator[dict[str, Any]]:
        """POST ``body`` as JSON and give the JSON of each event of the answer, as it comes.

        Raises what the server refuses, and an error that comes as an event. Whoever stops listening
        closes the connection, which ends the request.
        """
        for line in self._lines(path, body, _EVENTS):
            if line.body.startswith(b"data:"):
                yield self._event(replace(line, body=line.body.removeprefix(b"data:")))

    def _event(self, reply: Reply) -> dict[str, Any]:
        event: dict[str, Any] = self._json(reply)
        if set(event) == {"error"}:
            raise self._refusal(reply.status, str(event["error"]))
        return event

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


def model_path(model: str, version: str = "") -> str:
    """The path of a model, or of one version of it."""
    return f"/v2/models/{quote(model, safe='')}" + (f"/versions/{version}" if version else "")
