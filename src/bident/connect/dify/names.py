"""Names that Dify's templates and code nodes can carry."""

from __future__ import annotations

import keyword
import re

LONGEST = 30
"""``{{#node.name#}}`` matches no longer name."""


class Names:
    """Gives every tensor a name of its own."""

    def __init__(self, *reserved: str) -> None:
        self._taken = set(reserved)

    def name(self, wish: str, longest: int = LONGEST) -> str:
        """An identifier like ``wish`` that nobody has yet."""
        plain = identifier(wish)
        for number in range(1, len(self._taken) + 2):
            end = "" if number == 1 else f"_{number}"
            candidate = plain[: longest - len(end)] + end
            if candidate not in self._taken:
                self._taken.add(candidate)
                return candidate
        raise AssertionError("more names than were given out are tried")


def identifier(text: str) -> str:
    """``text`` in letters, digits and underscores of ASCII, not beginning with a digit."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_") or "value"
    return f"_{plain}" if plain[0].isdigit() or keyword.iskeyword(plain) else plain
