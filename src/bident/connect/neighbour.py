"""The seam: what every neighbour can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from bident.connect.site import Site
from bident.errors import ServeError, invalid_arg


@dataclass(frozen=True)
class Wanted:
    """What the person asked for."""

    models: tuple[str, ...] = ()
    """Only these; all that are loaded if empty."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Further choices, by the names in :attr:`Neighbour.options`."""

    def option(self, name: str, default: str = "") -> str:
        """One choice, or ``default``."""
        return self.options.get(name, default)

    def one_of(self, name: str, *known: str) -> str:
        """One choice of ``known``, of which the first goes without saying. Raises INVALID_ARG for any other."""
        value = self.option(name, known[0])
        if value not in known:
            raise invalid_arg(f"--set {name}={value}: it is {', '.join(known[:-1])} or {known[-1]}")
        return value

    def includes(self, model: str) -> bool:
        """Whether this model is meant: it was named, or none was."""
        return not self.models or model in self.models


@dataclass(frozen=True)
class File:
    """One file that the neighbour wants, complete."""

    path: str
    """Relative, with forward slashes."""
    text: str
    about: str
    """One line: what it is and where it goes."""


@dataclass(frozen=True)
class Hop:
    """One step of the way between a neighbour and a model, tried."""

    name: str
    """From where to where."""
    works: bool
    seen: str
    """What was seen."""
    cure: str = ""
    """What to do about it, where it does not work."""


def failed(name: str, error: Exception, otherwise: str, cure: str) -> Hop:
    """A hop that ended with ``error``; ``otherwise`` says what was seen where that is no ServeError."""
    return Hop(name, False, error.message if isinstance(error, ServeError) else otherwise, cure)


def until_failure(hops: Iterable[Hop]) -> Iterator[Hop]:
    """``hops`` up to and including the first that does not work; what comes after it is not tried."""
    for hop in hops:
        yield hop
        if not hop.works:
            return


class Neighbour(ABC):
    """Another system that uses what is served here, or watches it."""

    name: ClassVar[str]
    """As ``bident connect`` takes it."""
    summary: ClassVar[str]
    """One line for its help."""
    options: ClassVar[Mapping[str, str]] = {}
    """Names of what can be chosen with ``--set NAME=VALUE``, each with one line of help."""

    @abstractmethod
    def files(self, site: Site, wanted: Wanted) -> list[File]:
        """The exact configuration for ``site``. Raises ServeError where there is nothing to connect."""

    @abstractmethod
    def steps(self, site: Site, wanted: Wanted) -> list[str]:
        """What a person does with the files: one command or sentence each."""

    @abstractmethod
    def check(self, site: Site, wanted: Wanted) -> Iterator[Hop]:
        """Try the way hop by hop, in the direction of a call; stops at the first that does not work."""
