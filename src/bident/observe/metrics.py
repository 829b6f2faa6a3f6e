"""Prometheus text exposition, written by hand: Triton's counters have no ``_total``.

Format 0.0.4: one HELP and one TYPE line per family, label values escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CONTENT_TYPE = b"text/plain; charset=utf-8"


@dataclass(frozen=True)
class Family:
    """One metric: its name, kind (``counter`` or ``gauge``) and what it means."""

    name: str
    kind: str
    help: str


def render(family: Family, samples: Iterable[tuple[Mapping[str, str], float]]) -> str:
    """The lines of ``family``: each sample is its labels and its value."""
    lines = [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
    for labels, value in samples:
        text = ",".join(f'{key}="{escape(label)}"' for key, label in sorted(labels.items()))
        lines.append(f"{family.name}{{{text}}} {_number(value)}" if text else f"{family.name} {_number(value)}")
    return "\n".join(lines) + "\n"


def escape(label: str) -> str:
    """A label's value as the format wants it."""
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
