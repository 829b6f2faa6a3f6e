"""The page of pitfalls and the doctor's checks say the same."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from bident.doctor.check import Check
from bident.doctor.registry import checks

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "pitfalls.md"
CHECKS = {check.name: check for check in checks()}
PLATFORM = [f"6.{number}" for number in range(1, 10)]
WITHOUT_DOCKER = [f"5.{number}" for number in range(1, 5)]


class Row(NamedTuple):
    line: int
    theme: str
    cells: list[str]
    noticed_by: str
    fix: str


def _rows() -> list[Row]:
    """Every row of every table, with the heading above it."""
    rows, theme, head = [], "", []
    for number, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("## "):
            theme, head = line.removeprefix("## "), []
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not head:
            head = [cell.strip() for cell in line.strip("|").split("|")]
        elif not line.startswith("|---"):
            assert len(cells) == len(head), f"{PAGE.name}:{number} has {len(cells)} cells, and {len(head)} columns"
            named = dict(zip(head, cells, strict=True))
            rows.append(Row(number, theme, cells, named["noticed by"], named.get("`--fix`", "")))
    return rows


ROWS = _rows()


def _names(row: Row) -> list[str]:
    return re.findall(r"`([^`]+)`", row.noticed_by)


def _can_fix(check: Check) -> bool:
    return re.search(r"\bfix\s*=|\bFix\(", inspect.getsource(type(check))) is not None


def test_every_check_has_a_row() -> None:
    assert sorted(set(CHECKS) - {name for row in ROWS for name in _names(row)}) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"line {row.line}")
def test_every_row_names_who_notices(row: Row) -> None:
    names = _names(row)
    assert names, f"{PAGE.name}:{row.line} names nobody"
    if row.noticed_by.startswith("by construction: "):
        assert [name for name in names if not (ROOT / name).is_file()] == []
    else:
        assert [name for name in names if name not in CHECKS] == []
        assert row.fix in ("", "yes" if any(_can_fix(CHECKS[name]) for name in names) else "no")


def test_every_row_says_what_is_seen_why_and_what_to_do() -> None:
    assert [row.line for row in ROWS if not all(row.cells[:3])] == []
    assert [row.line for row in ROWS if row.fix == "" and "construction" not in row.noticed_by] == []


def test_every_section_of_the_articles_has_a_row() -> None:
    for theme, sections in (("A platform of two engines", PLATFORM), ("Triton without Docker", WITHOUT_DOCKER)):
        there = {number for row in ROWS if row.theme == theme for number in row.cells[0].split(", ")}
        assert set(sections) <= there


def test_checks_are_named_as_the_command_line_is() -> None:
    assert [name for name in CHECKS if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)] == []
    assert [check.name for check in CHECKS.values() if not check.title or check.title.endswith(".")] == []
