"""Where Bident is not as the judge on purpose. Each entry names its row of ``docs/differences.md``, which says why."""

from __future__ import annotations

import re
from dataclasses import dataclass

from judged_comparison import Mismatch


@dataclass(frozen=True)
class Difference:
    """``cases`` and ``what`` are patterns of a case's id and of how a mismatch is printed.

    ``row`` is how its row in ``docs/differences.md`` begins. ``compatible``: --triton-compat does not switch it off.
    """

    row: str
    cases: str
    what: str
    compatible: bool = True

    def matches(self, case: str, mismatch: Mismatch) -> bool:
        return bool(re.search(self.cases, case) and re.search(self.what, str(mismatch)))


DIFFERENCES: tuple[Difference, ...] = ()


def explained(case: str, mismatch: Mismatch, *, compatible: bool = False) -> bool:
    """Whether an entry says that and why ``case`` differs so."""
    return any(one.matches(case, mismatch) for one in DIFFERENCES if one.compatible or not compatible)
