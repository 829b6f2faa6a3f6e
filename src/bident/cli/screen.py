"""What commands write: tables and notes for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDTH_WHEN_PIPED = 160


@lru_cache(maxsize=2)
def console(stderr: bool = False) -> Console:
    """Standard output (or error) as Rich writes to it; never narrower than a pipe needs."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr, width=None if stream.isatty() else _WIDTH_WHEN_PIPED, soft_wrap=False, highlight=False
    )


def table(*columns: str) -> Table:
    """An empty table; a column whose name starts with ``>`` is aligned to the right."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return made


def show(value: Any) -> None:
    """Print a table, or text with Rich markup, to standard output."""
    console().print(value)


def text(value: str) -> str:
    """``value`` safe to put into a table or a marked-up line."""
    from rich.markup import escape

    return escape(value)


def note(line: str) -> None:
    """A remark on standard error, out of the way of what is piped."""
    print(line, file=sys.stderr)


def show_json(value: Any) -> None:
    """Print ``value`` as indented JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def show_compact(value: Any) -> None:
    """Print ``value`` as JSON on one line, at once."""
    print(json.dumps(value, ensure_ascii=False), flush=True)
