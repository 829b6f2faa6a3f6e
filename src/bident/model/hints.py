"""Near misses: what the writer of a config or the namer of a file probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

_LISTED = 12
_LONGEST_WORD = 256
_MOST_WORDS = 1000


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?`` where a known word is close, else the words that exist.

    An empty string when there is nothing to name.
    """
    words = list(dict.fromkeys(known))
    near = closest(word, words)
    if near is not None:
        return f"did you mean '{near}'?"
    return f"there is {listed(words)}" if words else ""


def closest(word: str, known: Collection[str]) -> str | None:
    """The known word that is most like ``word``, if one is. Case counts as close.

    None is close to a word that is very long or among very many: the search would take minutes, and
    it is clients who ask for it.
    """
    if len(word) > _LONGEST_WORD or len(known) > _MOST_WORDS:
        return None
    folded = {name.lower(): name for name in reversed(list(known))}
    near = difflib.get_close_matches(word.lower(), folded, 1, cutoff=0.6)
    return folded[near[0]] if near else None


def listed(words: Iterable[str]) -> str:
    """The words quoted and joined, cut after a dozen; ``nothing`` when there are none."""
    names = list(words)
    shown = ", ".join(f"'{name}'" for name in names[:_LISTED])
    rest = len(names) - _LISTED
    return (f"{shown} and {rest} more" if rest > 0 else shown) or "nothing"
