"""The letters of a template to its words (https://pkg.go.dev/text/template, "Text and spaces" and "Actions")."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bident.errors import ServeError, invalid_arg


class Word(NamedTuple):
    """``kind`` is a group of ``_WORD``; ``glued`` is whether it follows the word before without a space."""

    kind: str
    text: str
    glued: bool


@dataclass(frozen=True)
class Action:
    """The words between ``{{`` and ``}}``, and the number of the line they begin in."""

    words: tuple[Word, ...]
    line: int


_WORD = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<string>"(?:\\.|[^"\\\n])*")
    | (?P<raw>`[^`]*`)
    | (?P<character>'(?:\\.[^'\n]*|[^'\\\n])')
    | (?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?))
    | (?P<field>\.[^\W\d]\w*)
    | (?P<dot>\.)
    | (?P<variable>\$\w*)
    | (?P<name>[^\W\d]\w*)
    | (?P<declare>:=)
    | (?P<sign>[=|(),])
    """,
    re.VERBOSE,
)
_COMMENT = re.compile(r"(-\s+)?/\*.*?\*/(\s+-)?\}\}", re.DOTALL)
_SPACE = " \t\r\n"
_LONGEST = 1 << 20


def lex(template: str) -> Iterator[str | Action]:
    """Texts and actions in turn, with the space gone that ``{{-`` and ``-}}`` take away.

    Raises INVALID_ARG for what is not Go's template language, with the number of the line.
    """
    if len(template) > _LONGEST:
        raise invalid_arg(f"template is too long: {len(template)} characters, {_LONGEST} are the most")
    place = 0
    trims = False
    while (start := template.find("{{", place)) >= 0:
        text = template[place:start]
        opening = start + 2
        trims_before = template[opening : opening + 1] == "-" and template[opening + 1 : opening + 2] in set(_SPACE)
        yield _trimmed(text, left=trims, right=trims_before)
        comment = _COMMENT.match(template, opening)
        if comment:
            place, trims = comment.end(), comment[2] is not None
            continue
        action, place, trims = _action(template, opening + trims_before)
        yield action
    yield _trimmed(template[place:], left=trims, right=False)


def wrong(line: int, problem: str) -> ServeError:
    """The error for a template that cannot be read, or carried out, at ``line``."""
    return invalid_arg(f"template:{line}: {problem}")


def _trimmed(text: str, *, left: bool, right: bool) -> str:
    text = text.lstrip(_SPACE) if left else text
    return text.rstrip(_SPACE) if right else text


def _action(template: str, place: int) -> tuple[Action, int, bool]:
    """The action whose words begin at ``place``, where the text goes on, and whether that loses its leading space."""
    line = template.count("\n", 0, place) + 1
    words: list[Word] = []
    glued = False
    while True:
        if template.startswith("}}", place):
            return Action(tuple(words), line), place + 2, False
        if template.startswith("-}}", place) and not glued:
            return Action(tuple(words), line), place + 3, True
        found = _WORD.match(template, place)
        if found is None:
            if place >= len(template):
                raise wrong(line, "an action is not closed: '}}' is missing")
            raise wrong(line, f"unexpected {template[place]!r} in an action")
        place = found.end()
        kind = found.lastgroup or ""
        if kind != "space":
            words.append(Word(kind, found[0], glued))
        glued = kind != "space"
