"""What a server says of models that do not serve, or not fully: loading, failed, being started anew."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

Entry = dict[str, Any]
"""One entry of the repository index."""

_LONGEST_PART = 240
"""Characters of a line that is one of several; a reason of one line is never cut."""

_MOMENT = re.compile(r"\bsince (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z")


def loading(entries: Iterable[Entry]) -> list[Entry]:
    """Those that are being loaded."""
    return [entry for entry in entries if entry.get("state") == "LOADING"]


def failed(entries: Iterable[Entry]) -> list[Entry]:
    """Those that do not serve although nobody unloaded them."""
    return [entry for entry in entries if entry.get("state") == "UNAVAILABLE" and entry.get("reason") != "unloaded"]


def impaired(entries: Iterable[Entry]) -> list[Entry]:
    """Those that serve with fewer instances than they should have."""
    return [entry for entry in entries if entry.get("state") == "READY" and entry.get("reason")]


def lines(entries: Sequence[Entry]) -> list[str]:
    """One line for each: its name, version and reason."""
    return [f"  {_named(entry)}: {remark(entry.get('reason', ''))}" for entry in entries]


def summary(entries: Sequence[Entry]) -> str:
    """Those that are being loaded in a few words: ``a 1 (for 12 s), b 3 (for 2 min)``."""
    return ", ".join(
        f"{_named(entry)} ({remark(entry.get('reason', '')).removeprefix('loading ') or 'just begun'})"
        for entry in entries
    )


def remark(reason: str) -> str:
    """``reason`` in one line, with how long ago in place of since when."""
    return _MOMENT.sub(lambda found: f"for {lasting(time.time() - _seconds(found[1]))}", gist(reason))


def gist(reason: str) -> str:
    """``reason`` in one line: of several the first, which says what happened, and the last, which says why.

    The last line of what a dying process printed is its exception. Frames, which Triton's Python backend
    lists below ``At:``, are left out: those of an import say nothing.
    """
    lines = [line.strip() for line in reason.partition("\nAt:\n")[0].splitlines() if line.strip()]
    if len(lines) < 2:
        return "".join(lines)
    first, last = (_cut(lines[at].rstrip("; ")) for at in (0, -1))
    return f"{first} ... {last}" if len(lines) > 2 else f"{first} {last}"


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST_PART else f"{line[: _LONGEST_PART - 3]}..."


def lasting(seconds: float) -> str:
    """A stretch of time, roughly; never negative, whatever the clocks of two machines say."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h"


def _named(entry: Entry) -> str:
    return " ".join(filter(None, (entry["name"], entry.get("version", ""))))


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).replace(tzinfo=timezone.utc).timestamp()
