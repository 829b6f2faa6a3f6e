"""Servers of others, asked over HTTP when a connection to them is checked. They are shown none of our keys."""

from __future__ import annotations

import json
from typing import Any, ClassVar

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

    def get(self, path: str) -> Reply:
        """The answer to GET, whatever its status. Raises UNAVAILABLE where nobody answers, in one clause."""
        try:
            return self.exchange("GET", path)
        except ServeError as error:
            raise ServeError(error.code, error.message.partition(";")[0]) from None

    def get_json(self, path: str) -> Any:
        """The JSON of a good answer. Raises UNAVAILABLE for any other."""
        reply = self.get(path)
        try:
            answer = json.loads(reply.body)
        except ValueError:
            answer = None
        if reply.status >= 400 or answer is None:
            shown = reply.body[:200].decode("utf-8", "replace").strip()
            raise ServeError(Code.UNAVAILABLE, f"{self.url}{path} answered {reply.status}: {shown or 'nothing'}")
        return answer
