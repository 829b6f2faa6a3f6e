"""Examines a patient with all the checks there are, and cures what can be cured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bident.doctor.check import Check, Finding, Patient, Weight
from bident.doctor.models.case import ModelCheck, cases
from bident.doctor.registry import checks
from bident.errors import Code, ServeError
from bident.model.folder import CONFIG, version_of
from bident.model.near_miss import taken_for_repository

_ORDER = list(Weight)
_READ = (".yaml", ".yml", ".env", ".conf")
"""How files of neighbours end."""
_MOST_ROUNDS = 12
"""A cure can bring to light what was hidden behind the pitfall; more often than this it goes round in circles."""


@dataclass(frozen=True)
class Treated:
    """One cure that was tried. ``problem`` is empty where it was applied."""

    finding: Finding
    problem: str = ""


def patient_of(path: Path, target: str) -> Patient:
    """What ``path`` is: a repository, one model folder (or a file of it), or another file. Raises NOT_FOUND."""
    path = path.absolute()
    if path.is_file():
        folder = path.parent.parent if version_of(path.parent.name) is not None else path.parent
        if path.name == CONFIG or folder != path.parent:
            return Patient(repository=folder.parent, model=folder, target=target)
        return Patient(model=path, target=target)
    if not path.is_dir():
        raise ServeError(
            Code.NOT_FOUND, f"there is no {path}; name a model repository, a model folder in it, or a file"
        )
    if version_of(path.name) is not None and taken_for_repository(path.parent):
        path = path.parent
    if taken_for_repository(path):
        return Patient(repository=path.parent, model=path, target=target)
    return Patient(repository=path, target=target)


def is_unread(patient: Patient) -> bool:
    """Whether what was named is a file that no check can tell anything of."""
    path = patient.model
    if path is None or not path.is_file() or path.name.startswith(".env") or path.name.endswith(_READ):
        return False
    return all(not case.backend for case in cases(patient))


def selected(*, only_path: bool) -> list[Check]:
    """All checks; with ``only_path`` those alone that look at what the command was given."""
    return [check for check in checks() if check.reads_path or not only_path]


def examine(patient: Patient, chosen: Iterable[Check]) -> list[Finding]:
    """What ``chosen`` find in ``patient``: the worst first, then by place."""
    chosen = list(chosen)
    found = list(_found(patient, chosen))
    return sorted(dict.fromkeys(found), key=lambda finding: (_ORDER.index(finding.weight), finding.where))


def _found(patient: Patient, chosen: list[Check]) -> Iterator[Finding]:
    of_models = [check for check in chosen if isinstance(check, ModelCheck)]
    for check in chosen:
        if not isinstance(check, ModelCheck):
            yield from _guarded(check, check.examine(patient))
    # Model by model, so that each of its files is read once for all checks.
    for case in cases(patient) if of_models else ():
        for check in of_models:
            yield from _guarded(check, check.findings(case))


def _guarded(check: Check, findings: Iterator[Finding]) -> Iterator[Finding]:
    """One check that fails must not keep the others from looking."""
    try:
        yield from findings
    except Exception as error:  # noqa: BLE001 - files can be anything, and this is the tool for what is broken
        yield Finding(
            check.name,
            Weight.NOTE,
            check.name,
            f"this check could not be finished: {type(error).__name__}: {error}",
            "A fault in Bident: no file, however damaged, should get here.",
            "report it with the model folder",
        )


def treat(patient: Patient, chosen: Iterable[Check], found: list[Finding]) -> tuple[list[Treated], list[Finding]]:
    """Apply what cures there are, examining again after each round; what was tried, and what is still found."""
    chosen, treated = list(chosen), []
    tried: set[tuple[str, str, str]] = set()
    for _ in range(_MOST_ROUNDS):
        curable = [finding for finding in found if finding.fix is not None and finding.key not in tried]
        if not curable:
            break
        # One for each place: what a cure has changed is to be read anew before the next.
        for finding in {finding.where: finding for finding in reversed(curable)}.values():
            tried.add(finding.key)
            treated.append(_apply(finding, patient))
        found = examine(patient, chosen)
    return treated, found


def _apply(finding: Finding, patient: Patient) -> Treated:
    assert finding.fix is not None
    try:
        _refuse_outside(finding.where, patient)
        finding.fix.apply()
    except ServeError as error:
        return Treated(finding, error.message)
    except OSError as error:
        return Treated(finding, f"{error.filename or finding.where}: {error.strerror or error}")
    return Treated(finding)


def _refuse_outside(where: str, patient: Patient) -> None:
    """Leave alone what a link leads to: whoever has lent a folder to a repository did not ask for it to be changed."""
    if patient.repository is None or not Path(where).is_relative_to(patient.repository):
        return
    folder = Path(where).parent.resolve()
    if not folder.is_relative_to(patient.repository.resolve()):
        raise ServeError(
            Code.UNAVAILABLE,
            f"a link leads out of {patient.repository}, to {folder}, which stays as it is; examine that folder itself",
        )
