"""The text server's public API: Ollama's."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bident.client.connection import Connection
from bident.errors import ServeError

_NDJSON = "application/x-ndjson"
_OK = 200


class TextClient(Connection):
    """A text server: Bident's, or a real Ollama. Bodies and answers are those of Ollama's API document."""

    protocol = "Ollama's API"
    example = "http://127.0.0.1:11434"
    flag = "--text-url"

    def stream(self, path: str, body: dict[str, Any], method: str = "POST") -> Generator[dict[str, Any], None, None]:
        """The objects of a streamed answer, as they come. Raises what the server refuses, and an error among them.

        Whoever stops listening closes the connection, which ends the request.
        """
        for line in self._lines(path, body, _NDJSON, method):
            said: dict[str, Any] = self._json(line)
            if "error" in said:
                raise self._refusal(line.status, str(said["error"]))
            yield said

    def live(self) -> bool:
        """Whether a text server answers."""
        try:
            return "version" in self.call("GET", "/api/version")
        except (ServeError, TypeError):
            return False

    def version(self) -> dict[str, Any]:
        """What the server says of itself."""
        found: dict[str, Any] = self.call("GET", "/api/version")
        return found

    def is_real_ollama(self) -> bool:
        """Whether an Ollama answers, and not this text server, which says what it is."""
        try:
            said = self.version()
        except ServeError:
            return False
        return isinstance(said, dict) and "version" in said and "bident" not in said

    def models(self) -> list[dict[str, Any]]:
        """The models that there are."""
        found: list[dict[str, Any]] = self.call("GET", "/api/tags")["models"]
        return found

    def running(self) -> list[dict[str, Any]]:
        """The models that are loaded."""
        found: list[dict[str, Any]] = self.call("GET", "/api/ps")["models"]
        return found

    def show(self, model: str) -> dict[str, Any]:
        """What a model is. Raises NOT_FOUND."""
        found: dict[str, Any] = self.call("POST", "/api/show", {"model": model})
        return found

    def embed(self, model: str, texts: Sequence[str]) -> list[list[float]]:
        """One vector for each of ``texts``."""
        found: list[list[float]] = self.call("POST", "/api/embed", {"model": model, "input": texts})["embeddings"]
        return found

    def copy(self, source: str, destination: str) -> None:
        """Give a model a second name."""
        self._send("POST", "/api/copy", {"source": source, "destination": destination})

    def delete(self, model: str) -> None:
        """Delete a model, and what no other one uses."""
        self._send("DELETE", "/api/delete", {"model": model})

    def unload(self, model: str) -> None:
        """Take a model out of memory."""
        self._send("POST", "/api/generate", {"model": model, "keep_alive": 0, "stream": False})

    def has_blob(self, digest: str) -> bool:
        """Whether the server has the file whose ``digest`` is ``sha256:...``."""
        return self.exchange("HEAD", f"/api/blobs/{quote(digest, safe=':')}").status == _OK

    def put_blob(self, digest: str, path: Path) -> None:
        """Send the file at ``path``, which has that ``digest``."""
        size = str(path.stat().st_size)
        with path.open("rb") as file:
            headers = {"Content-Type": "application/octet-stream", "Content-Length": size}
            self.check(self.exchange("POST", f"/api/blobs/{quote(digest, safe=':')}", file, headers))
