"""How many clients there are: whether a request can have company at all."""

from __future__ import annotations


class Clients:
    """Counts the connections of an engine's doors; the doors keep ``count``, the schedulers read it."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0
