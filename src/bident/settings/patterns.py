"""The patterns of header forwarding: RE2's, matched by Python's ``re`` without its dangers.

RE2 takes time in proportion to the text, whatever the pattern. ``re`` backtracks: with some patterns it
takes time that doubles with each letter, and a header's name is the client's choice. So what repeats
something that itself varies is refused at the start, and so are many repeats in a row; as long as
names are short, the rest is harmless. What RE2 does not know is refused too.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

_MOST_REPEATS = 3
"""Repeats in a row: a match may take time that grows with the length of the name to this power."""
_TOKENS = re.compile(
    r"(?P<reference>\\[1-9])|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"  # escapes and classes
    r"|(?P<open>\((?!\?)|\(\?(?:P?<\w+>|[imsU-]*:))|(?P<unknown>\(\?)|(?P<close>\))|(?P<bar>\|)"
    r"|(?P<possessive>(?:[*+?]|\{\d+(?:,\d*)?\})\+)|(?P<repeat>[*+?]|\{\d+(?:,\d*)?\})\??|.",
    re.DOTALL,
)
_POSIX_CLASS = re.compile(r"\[:\^?\w+:\]")
_LEADING_FLAGS = re.compile(r"\(\?([ims]*)(?:-([ims]+))?\)")
_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """``pattern`` ready to search names with: in either case unless it begins with ``(?-i)``, as Triton has it.

    Raises ValueError with the reason where it cannot be used.
    """
    if posix := _POSIX_CLASS.search(pattern):
        raise _unusable(pattern, f"{posix[0]} is not supported: write the characters out, as in [a-z]")
    flags, rest = re.IGNORECASE | re.ASCII, pattern
    if leading := _LEADING_FLAGS.match(pattern):
        rest = pattern[leading.end() :]
        for letter in leading[1]:
            flags |= _FLAGS[letter]
        for letter in leading[2] or "":
            flags &= ~_FLAGS[letter]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what Python may read differently one day, and RE2 does not
            compiled = re.compile(rest, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise _unusable(pattern, str(error)) from None
    _check_time(pattern, rest)
    return compiled


@dataclass
class _Group:
    """What has been read of a group: its longest alternative in repeats, the current one, and whether it varies."""

    longest: int = 0
    repeats: int = 0
    varies: bool = False

    @property
    def most(self) -> int:
        return max(self.longest, self.repeats)


def _check_time(pattern: str, rest: str) -> None:
    """Raise ValueError if looking for ``rest`` in a short name may take long."""
    groups = [_Group()]
    last = _Group()
    for token in _TOKENS.finditer(rest):
        kind = token.lastgroup
        if kind in ("reference", "unknown", "possessive"):
            raise _unusable(pattern, f"RE2 does not know {token[0]}")
        if kind == "open":
            groups.append(_Group())
        elif kind == "bar":
            group = groups[-1]
            group.longest, group.repeats, group.varies = group.most, 0, True
        elif kind == "close":
            last = groups.pop()
            groups[-1].repeats += last.most
            groups[-1].varies |= last.varies
        elif kind == "repeat":
            _repeat(pattern, groups[-1], last, token["repeat"])
        else:
            last = _Group()
    if groups[0].most > _MOST_REPEATS:
        raise _unusable(pattern, f"more than {_MOST_REPEATS} repeats in a row can take very long to match")


def _repeat(pattern: str, group: _Group, repeated: _Group, operator: str) -> None:
    """Count ``operator``, which repeats what was read last in ``group``."""
    if operator != "?" and repeated.varies:
        raise _unusable(pattern, f"'{operator}' repeats what varies itself, which can take very long to match")
    low, _, high = operator.strip("{}").partition(",")
    if low != high and ("," in operator or operator in "*+"):
        group.repeats += 1
    group.varies |= not operator.startswith("{") or "," in operator


def _unusable(pattern: str, reason: str) -> ValueError:
    return ValueError(f"Invalid regex pattern '{pattern}' for forwarding headers: {reason}")
