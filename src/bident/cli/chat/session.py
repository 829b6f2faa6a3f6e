"""A conversation with a text model: what has been said, and how the next answer is wanted."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bident.client import TextClient

VISION = "vision"


@dataclass
class Session:
    """``options`` go by Ollama's names; ``format`` is ``json`` or a JSON schema; ``think`` as the API has it."""

    client: TextClient
    model: str
    capabilities: frozenset[str] = frozenset()
    system: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    format: Any = None
    think: bool | str | None = None
    keep_alive: str | float | None = None
    verbose: bool = False
    messages: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, text: str, images: list[str]) -> Generator[dict[str, Any], None, None]:
        """The pieces of the answer to ``text``, as they come. ``images`` are in base64.

        What was asked and answered is remembered when the answer ends, or is broken off; of one that fails
        nothing is. Raises what the server refuses.
        """
        asked: dict[str, Any] = {"role": "user", "content": text}
        if images:
            asked["images"] = images
        answer = {"role": "assistant", "content": ""}
        try:
            with closing(self.client.stream("/api/chat", self._request(asked))) as pieces:
                for piece in pieces:
                    said = piece.get("message") or {}
                    answer["content"] += said.get("content") or ""
                    yield piece
        except (KeyboardInterrupt, GeneratorExit):
            self.messages += [asked, answer]
            raise
        self.messages += [asked, answer]

    def _request(self, asked: dict[str, Any]) -> dict[str, Any]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        wanted = {"format": self.format, "think": self.think, "keep_alive": self.keep_alive, "options": self.options}
        given = {name: value for name, value in wanted.items() if value not in (None, {})}
        return {"model": self.model, "messages": [*system, *self.messages, asked], "stream": True, **given}

    def forget(self) -> None:
        """Begin anew, with the same wishes."""
        self.messages.clear()

    def embed(self, text: str) -> list[float]:
        """The vector of ``text``, of an embedding model."""
        answer = self.client.call("POST", "/api/embed", {"model": self.model, "input": text})
        vector: list[float] = answer["embeddings"][0]
        return vector
