"""Where results go: ``benchmarks/results.json``, and from it the table in ``docs/benchmarks.md``."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.table import Bar, Row, markdown

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
DOCUMENT = HERE.parent / "docs" / "benchmarks.md"
BEGIN = "<!-- benchmarks: begin, written by `make bench` -->"
END = "<!-- benchmarks: end -->"


@dataclass(frozen=True)
class Section:
    """The rows of one benchmark, all measured in one run on one machine."""

    title: str
    rows: list[Row]
    measured_on: str

    @classmethod
    def of_now(cls, title: str, rows: list[Row]) -> Section:
        """A section measured just now, on this machine."""
        today = datetime.now(timezone.utc).date().isoformat()
        system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        return cls(title, rows, f"{today}, {system}")


def load(path: Path = RESULTS) -> dict[str, Section]:
    """The sections of earlier runs by benchmark name; none if there is no file yet."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {name: _section(section) for name, section in stored.items()}


def save(sections: dict[str, Section], path: Path = RESULTS) -> None:
    """Write every section, with each row's verdict for readers of the file."""
    stored = {
        name: {
            "title": section.title,
            "measured_on": section.measured_on,
            "rows": [{**asdict(row), "passed": row.passed} for row in section.rows],
        }
        for name, section in sections.items()
    }
    path.write_text(json.dumps(stored, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def publish(sections: dict[str, Section], path: Path = DOCUMENT) -> None:
    """Replace what stands between the two markers of ``path``. Raises ValueError when they are missing."""
    text = path.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} needs the two lines {BEGIN} and {END}")
    path.write_text(f"{head}{BEGIN}\n{render(sections)}\n{END}{tail}", encoding="utf-8")


def render(sections: dict[str, Section]) -> str:
    """The sections as Markdown: a heading, where and when, and the table."""
    parts = [f"\n### {each.title}\n\n{each.measured_on}\n\n{markdown(each.rows)}" for each in sections.values()]
    return "".join(parts)


def _section(stored: dict[str, Any]) -> Section:
    rows = []
    for fields in stored["rows"]:
        known = {key: value for key, value in fields.items() if key not in {"passed", "bar"}}
        rows.append(Row(**known, bar=Bar(**fields["bar"])))
    return Section(stored["title"], rows, stored["measured_on"])
