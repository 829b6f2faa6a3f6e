"""The servers that do the work: a model's own process, or an OpenAI-compatible server elsewhere.

Both take the same paths and bodies (``/v1/chat/completions`` and so on). llama.cpp's have more of both.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Asked(Protocol):
    """What a lease on a model and an upstream have in common."""

    def stream(self, path: str, payload: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The objects that the server streams as events. Closing it ends the work at once.

        Raises ServeError for an error before the first object, and for one among them.
        """

    async def ask(self, path: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The server's one answer. Raises ServeError."""


@dataclass(frozen=True)
class Server:
    """Who is asked, and what is known about it.

    ``is_native`` is whether it is llama.cpp, which has ``/tokenize``, ``/apply-template``, ``/infill``
    and sampling options of its own. ``context_length`` is 0 where it is not known.
    """

    asked: Asked
    is_native: bool
    model: str
    context_length: int = 0
    slots: int = 1
    load_ns: int = 0


@dataclass(frozen=True)
class RemoteModel:
    """A model that another server, at ``url``, answers for."""

    name: str
    url: str


class Upstreams(Protocol):
    """The models that other servers answer for."""

    def find(self, model: str) -> Server | None:
        """The OpenAI-compatible server that answers for ``model``, with the name it has there."""

    def remote(self, model: str) -> RemoteModel | None:
        """Where ``model`` is, if another server answers for it."""

    async def listed(self) -> list[RemoteModel]:
        """The models that are known to be elsewhere."""
