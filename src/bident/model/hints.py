"""Near misses: what the writer of a config or the namer of a file probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LISTED = 12


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?`` where a known word is close, else the words that exist.

    Case counts as close. An empty string when there is nothing to name.
    """
    words = list(dict.fromkeys(known))
    folded = {name.lower(): name for name in reversed(words)}
    near = difflib.get_close_matches(word.lower(), folded, 1, cutoff=0.6)
    if near:
        return f"did you mean '{folded[near[0]]}'?"
    return f"there is {listed(words)}" if words else ""


def listed(words: Iterable[str]) -> str:
    """The words quoted and joined, cut after a dozen; ``nothing`` when there are none."""
    names = list(words)
    shown = ", ".join(f"'{name}'" for name in names[:_LISTED])
    rest = len(names) - _LISTED
    return (f"{shown} and {rest} more" if rest > 0 else shown) or "nothing"
