"""What a template consists of once it has been read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Constant:
    """A string, a number, true, false or nil."""

    value: Any


@dataclass(frozen=True)
class Dot:
    """``.``, what the template is about at this place."""


@dataclass(frozen=True)
class Variable:
    """``$name``; ``$`` alone is what the template was given."""

    name: str


@dataclass(frozen=True)
class Field:
    """``.name`` of ``owner``."""

    owner: Operand
    name: str


@dataclass(frozen=True)
class Function:
    """The name of a function; where it stands alone, it is called without arguments."""

    name: str


@dataclass(frozen=True)
class Pipeline:
    """Commands, each of which gets the result of the one before as its last argument.

    ``variables`` take the last result: new ones if ``declares``. A range may have two of them.
    """

    commands: tuple[tuple[Operand, ...], ...]
    variables: tuple[str, ...] = ()
    declares: bool = True


Operand: TypeAlias = Constant | Dot | Variable | Field | Function | Pipeline


@dataclass(frozen=True)
class Text:
    """What is written as it stands."""

    text: str


@dataclass(frozen=True)
class Output:
    """A pipeline whose result is written, unless it goes to a variable."""

    pipeline: Pipeline


@dataclass(frozen=True)
class Branch:
    """``if``, ``with`` or ``range``, by its ``keyword``."""

    keyword: str
    pipeline: Pipeline
    body: Body
    otherwise: Body


@dataclass(frozen=True)
class Jump:
    """``break`` or ``continue``."""

    keyword: str


@dataclass(frozen=True)
class Call:
    """``{{ template "name" pipeline }}``."""

    name: str
    pipeline: Pipeline | None


Node: TypeAlias = Text | Output | Branch | Jump | Call
Body: TypeAlias = tuple[Node, ...]


@dataclass(frozen=True)
class Template:
    """A template that has been read.

    ``definitions`` are its ``define`` and ``block`` parts, ``names`` every field it mentions:
    what it can show at all (``Tools``, ``Messages``, ``Suffix``) is among them.
    """

    body: Body
    definitions: dict[str, Body] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
