"""The rows of the benchmark: what was measured, against whom, which bar it has to clear."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from benchmarks.rounds import paired_ratio

COLUMNS = ("what", "ours", "peer", "ratio", "bar", "verdict")


@dataclass(frozen=True)
class Bar:
    """What a figure has to be: at least, at most, or between."""

    at_least: float | None = None
    at_most: float | None = None

    def admits(self, value: float) -> bool:
        """Whether ``value`` clears the bar."""
        low = self.at_least is None or value >= self.at_least
        high = self.at_most is None or value <= self.at_most
        return low and high

    def __str__(self) -> str:
        if self.at_least is not None and self.at_most is not None:
            return f"{self.at_least:g} to {self.at_most:g}"
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    With a ``peer`` the bar is on ``ratio`` (ours / peer, median of the rounds' own ratios); without
    one it is on ``ours`` itself. ``ours`` and ``peer`` are medians in ``unit``.
    """

    name: str
    unit: str
    bar: Bar
    ours: float
    peer_name: str = ""
    peer: float | None = None
    ratio: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the bar is cleared."""
        return self.bar.admits(self.ours if self.ratio is None else self.ratio)

    def cells(self) -> tuple[str, ...]:
        """The row as text, one cell for each of ``COLUMNS``."""
        peer = "" if self.peer is None else f"{self.peer_name} {figure(self.peer)} {self.unit}"
        bar = str(self.bar) if self.ratio is not None else f"{self.bar} {self.unit}"
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        return (self.name, f"{figure(self.ours)} {self.unit}", peer, ratio, bar, "pass" if self.passed else "MISSED")


def compared(name: str, unit: str, bar: Bar, ours: Sequence[float], peer_name: str, peer: Sequence[float]) -> Row:
    """The row for paired rounds against a peer: ``ours[i]`` and ``peer[i]`` belong to the same round."""
    return Row(name, unit, bar, statistics.median(ours), peer_name, statistics.median(peer), paired_ratio(ours, peer))


def measured(name: str, unit: str, bar: Bar, ours: Sequence[float]) -> Row:
    """The row for a figure that has a limit of its own and no peer."""
    return Row(name, unit, bar, statistics.median(ours))


def figure(value: float) -> str:
    """Three significant digits, thousands separated: 41,800 · 107 · 3.35 · 0.0121."""
    if value == 0 or abs(value) >= 100:
        digits = 3 - len(str(int(abs(value))))
        return f"{round(value, min(digits, 0)):,.0f}"
    return f"{value:.3g}"


def rich_table(sections: Mapping[str, Sequence[Row]]) -> Table:
    """The table for the terminal: rows under the title of their section."""
    table = Table(title="Bident against its peers, same run, medians of paired rounds")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in COLUMNS[1:4] else "left")
    for title, rows in sections.items():
        table.add_section()
        table.add_row(Text(title, style="bold"))
        for row in rows:
            *cells, verdict = row.cells()
            table.add_row(*cells, Text(verdict, style="green" if row.passed else "bold red"))
    return table


def markdown(rows: Iterable[Row]) -> str:
    """The table for the documentation."""
    alignment = ["---:" if column in COLUMNS[1:4] else "---" for column in COLUMNS]
    lines = [COLUMNS, alignment, *(row.cells() for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
