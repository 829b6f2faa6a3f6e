"""What clients have changed since the start, so that a worker that comes later can be brought to it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

MODELS = "models"


class Change(NamedTuple):
    """One call that must be made in every worker: a method of a part of the engine, and its arguments.

    ``part`` is ``models`` for the load and unload API, else the engine's attribute.
    """

    part: str
    verb: str
    arguments: tuple[Any, ...]

    @property
    def subject(self) -> str:
        """The name that the change is about, "" for none: changes of one name are made one after the other."""
        first = self.arguments[0] if self.arguments else ""
        return first if isinstance(first, str) else ""

    @property
    def is_load(self) -> bool:
        """Whether it puts a model into service, which all workers do in the same moment or none."""
        return self.part == MODELS and self.verb == "load"


class Journal:
    """The changes that still count, in the order in which they were made; what a later one undoes is dropped."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, Change] = {}
        self.names: list[str] | None = None
        """The models that workers load at the start; None while nobody has said."""

    def note(self, change: Change) -> None:
        """Add ``change``, which has been made."""
        key = (change.part, change.subject)
        if change.verb.startswith("unregister"):
            self._forget(change)
            return
        if change.verb == "unload" and self.names is not None and change.subject not in self.names:
            self._entries.pop(key, None)  # nobody would load it; and clients unload what never was
            return
        if change.verb == "update":
            before = self._entries.pop(key, None)
            if before is not None:
                change = _merged(before, change)
        self._entries.pop(key, None)
        self._entries[key] = change

    def changes(self) -> list[Change]:
        """What a worker has to be told to be like the others."""
        return list(self._entries.values())

    def touched(self) -> frozenset[str]:
        """The models that the load and unload API has had to do with."""
        return frozenset(change.subject for change in self._entries.values() if change.part == MODELS)

    def _forget(self, change: Change) -> None:
        """Drop what was registered under the name; under any name where none is given."""
        registered = change.verb.replace("unregister", "register", 1)
        for key, before in list(self._entries.items()):
            same = before.part == change.part and before.verb == registered
            if same and change.subject in ("", before.subject):
                del self._entries[key]


def _merged(before: Change, change: Change) -> Change:
    """Two updates of the same settings as one: the last argument of each is what it changes."""
    *where, old = before.arguments
    new = change.arguments[-1]
    return change._replace(arguments=(*where, {**old, **new}))
