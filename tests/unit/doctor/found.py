"""What a check found, for tests: the only finding there may be, and files that packages leave."""

from __future__ import annotations

from pathlib import Path

from bident.doctor.check import Check, Finding, Patient


def findings(check: Check, patient: Patient | None = None) -> list[Finding]:
    return list(check.examine(patient or Patient()))


def only(check: Check, patient: Patient | None = None) -> Finding:
    found = findings(check, patient)
    assert len(found) == 1, found
    assert found[0].check == check.name
    assert all((found[0].where, found[0].seen, found[0].cause, found[0].cure))
    return found[0]


def install(folder: Path, name: str, version: str, *requires: str) -> Path:
    """What pip notes of a package in ``folder``; returns the note's folder."""
    note = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    note.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    (note / "METADATA").write_text("\n".join(lines) + "\n")
    return note
