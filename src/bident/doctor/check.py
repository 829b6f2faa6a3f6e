"""The seam: what a check looks at, and what it finds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar


class Weight(Enum):
    """How bad it is."""

    BROKEN = "broken"
    """Does not work."""
    RISK = "risk"
    """Works, and will not somewhere or some day."""
    NOTE = "note"
    """Good to know."""


@dataclass(frozen=True)
class Fix:
    """A cure that the doctor can apply."""

    what: str
    """What it would do, in one line."""
    apply: Callable[[], None]
    """Does it; keeps what it replaces beside it as ``NAME.bak``. Raises ServeError, and then nothing has changed."""


@dataclass(frozen=True)
class Finding:
    """One pitfall, seen."""

    check: str
    """Name of the check."""
    weight: Weight
    where: str
    """File, port, package: what it was seen at."""
    seen: str
    cause: str
    """Root cause."""
    cure: str
    """What to do, as a command where one does it."""
    fix: Fix | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from the others, and is the same when the check looks again."""
        return self.check, self.where, self.seen


@dataclass(frozen=True)
class Patient:
    """What is examined."""

    repository: Path | None = None
    """A model repository; None where only the machine is examined."""
    model: Path | None = None
    """One model folder in it, or one file (a model's or not); None for all of the repository."""
    target: str = ""
    """The server that the models should load in: empty for Bident, or ``triton:25.05``."""


class Check(ABC):
    """One pitfall."""

    name: ClassVar[str]
    """Kebab-case; its row in ``docs/pitfalls.md`` carries it."""
    title: ClassVar[str]
    """The pitfall in one line."""
    reads_path: ClassVar[bool] = False
    """Whether it looks at the PATH that the command was given; the others look at the machine, whatever PATH is."""

    @abstractmethod
    def examine(self, patient: Patient) -> Iterator[Finding]:
        """Look for it. Raises nothing for what it cannot judge: it then finds nothing."""
