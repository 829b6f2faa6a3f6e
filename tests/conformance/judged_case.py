"""A case: what both servers are asked, step by step, under a name that can be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol


class Step(Protocol):
    """A request of either protocol."""

    def send(self, servers: Any) -> dict[str, Any]:
        """Ask one server; the answer as plain data."""


@dataclass(frozen=True)
class Case:
    """``id`` begins with the door."""

    id: str
    steps: tuple[Step, ...]


def case(name: str, *steps: Step) -> Case:
    return Case(name, steps)


def unique(cases: Iterable[Case]) -> list[Case]:
    """``cases``, whose names must differ."""
    found: dict[str, Case] = {}
    for one in cases:
        assert one.id not in found, f"two cases are called {one.id}"
        found[one.id] = one
    return list(found.values())
