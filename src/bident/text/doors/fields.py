"""The fields of a request's JSON object, each read as the type it must have.

What is ``null`` counts as left out, as Go's and Python's clients write it. Every error names the field
by its path, as ``messages[0].content``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from bident.errors import ServeError, invalid_arg
from bident.wire.shown import listed, shown

logger = logging.getLogger("bident.text")

_MOST_OBJECTS = 1 << 14
"""Messages, parts, tools and whatever else is a list of objects, in one request together. Each is a few microseconds'
work, and for so long nobody else is answered; a conversation of so many fits in no context."""
_MOST_FIELDS = 1 << 14
"""Of one object, for the same reason."""
_MOST_STRAYS = 1000
_strays: set[tuple[str, str]] = set()
"""Endpoints and fields that have been logged; bounded, as clients choose the names."""


class Fields:
    """A JSON object. It remembers which fields were asked for, so that the others can be named."""

    def __init__(self, values: Mapping[str, Any], path: str = "", whole: Fields | None = None) -> None:
        """``whole``: the request that the object is a part of; None if it is all of it.

        Raises INVALID_ARG for an object of too many fields.
        """
        if len(values) > _MOST_FIELDS:
            raise invalid_arg(f"{path or 'the request'} has {len(values)} fields, {_MOST_FIELDS} are the most")
        self._values = values
        self._path = path
        self._asked: set[str] = set()
        self._whole = whole or self
        self._listed = 0

    @property
    def values(self) -> Mapping[str, Any]:
        """The object itself."""
        return self._values

    def path(self, name: str) -> str:
        """What the field is called in an error."""
        return f"{self._path}.{name}" if self._path else name

    def raw(self, name: str) -> Any:
        """The field, whatever it is; None where it is missing."""
        self._asked.add(name)
        return self._values.get(name)

    def wrong(self, name: str, expected: str) -> ServeError:
        """INVALID_ARG: the field is not ``expected``."""
        return invalid_arg(f"{self.path(name)} must be {expected}, not {shown(self._values.get(name))}")

    def text(self, name: str, default: str = "") -> str:
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def text_if_given(self, name: str) -> str | None:
        return None if self.raw(name) is None else self.text(name)

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self.text(name, default)
        if value not in choices:
            raise self.wrong(name, f"one of {listed(choices)}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def whole(self, name: str, default: int, minimum: int, maximum: int = 2**31 - 1) -> int:
        """A whole number within bounds; ``1.0`` is one."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise self.wrong(name, f"a whole number from {minimum} to {maximum}")
        return value

    def number(self, name: str, minimum: float, maximum: float) -> float | None:
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not minimum <= value <= maximum:
            raise self.wrong(name, f"a number from {minimum:g} to {maximum:g}")
        return float(value)

    def elements(self, name: str, of: str = "a list") -> Sequence[Any]:
        value = self.raw(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.wrong(name, of)
        return value

    def texts(self, name: str) -> list[str]:
        """A string, or a list of them, as a list."""
        value = self.raw(name)
        found = [value] if isinstance(value, str) else self.elements(name, "a string or a list of strings")
        if not all(isinstance(each, str) for each in found):
            raise self.wrong(name, "a string or a list of strings")
        return [*found]

    def object(self, name: str) -> Fields | None:
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return Fields(value, self.path(name), self._whole)

    def objects(self, name: str) -> list[Fields]:
        """A list of objects, by their places."""
        found = self.elements(name, "a list of objects")
        self._whole._count(len(found))
        fields = []
        for index, value in enumerate(found):
            where = f"{self.path(name)}[{index}]"
            if not isinstance(value, dict):
                raise invalid_arg(f"{where} must be an object, not {shown(value)}")
            fields.append(Fields(value, where, self._whole))
        return fields

    def _count(self, more: int) -> None:
        self._listed += more
        if self._listed > _MOST_OBJECTS:
            raise invalid_arg(f"the request lists {self._listed} objects or more, {_MOST_OBJECTS} are the most")

    def ignore(self, *names: str) -> None:
        """These are known and change nothing here."""
        self._asked.update(names)

    def refuse(self, name: str, why: str) -> None:
        """Raise INVALID_ARG where the field is given: it would change the answer, and cannot be heeded."""
        if self.raw(name) not in (None, False, [], {}, ""):
            raise invalid_arg(f"{self.path(name)} is not supported: {why}")

    def log_strays(self, endpoint: str) -> None:
        """Say once for each endpoint which fields nobody has asked for."""
        for name in self._values.keys() - self._asked:
            stray = (endpoint, name)
            if stray not in _strays and len(_strays) < _MOST_STRAYS:
                _strays.add(stray)
                logger.warning("%s: the field %s is unknown and ignored", endpoint, shown(self.path(name)))
