"""Servers of others, asked over HTTP when a connection to them is checked. They are shown none of our keys."""

from __future__ import annotations

import json
from typing import Any, BinaryIO, ClassVar

from bident.client import Credentials, Reply
from bident.client.connection import Connection
from bident.errors import Code, ServeError

_SECONDS = 10.0


class Elsewhere(Connection):
    """A neighbour's server. ``flag`` says how a person names its address."""

    protocol: ClassVar[str] = "HTTP"
    example: ClassVar[str] = "http://127.0.0.1:9090"

    def __init__(self, url: str, seconds: float = _SECONDS) -> None:
        super().__init__(url, seconds, Credentials())

    def exchange(
        self, method: str, path: str, body: bytes | BinaryIO | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """One request and its answer, whatever its status. Raises UNAVAILABLE where nobody answers, in one clause."""
        try:
            return super().exchange(method, path, body, headers)
        except ServeError as error:
            raise ServeError(error.code, error.message.partition(";")[0]) from None

    def get_json(self, path: str) -> Any:
        """The JSON of a good answer. Raises UNAVAILABLE for any other."""
        return self.json_of(path, self.exchange("GET", path))

    def json_of(self, path: str, reply: Reply) -> Any:
        """The JSON of ``reply``, which came from ``path``. Raises UNAVAILABLE where it is no good answer."""
        try:
            answer = json.loads(reply.body)
        except ValueError:
            answer = None
        if reply.status >= 400 or answer is None:
            raise ServeError(Code.UNAVAILABLE, f"{self.url}{path} {said(reply)}")
        return answer


def said(reply: Reply) -> str:
    """What somebody answered, in a clause: the status and how the body begins."""
    shown = reply.body[:200].decode("utf-8", "replace").strip()
    return f"answered {reply.status}: {shown or 'nothing'}"
