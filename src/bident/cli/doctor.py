"""``bident doctor``: known pitfalls of models and machine, each with its cause and its cure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bident.cli import screen
from bident.errors import ServeError, invalid_arg
from bident.local.record import STATE_DIR, Record

if TYPE_CHECKING:
    from bident.doctor.check import Finding, Patient
    from bident.doctor.examination import Treated

_COLOURS = {"broken": "red", "risk": "yellow", "note": "cyan"}


What = Annotated[
    Path | None,
    typer.Argument(
        metavar="PATH",
        help="A model repository, a model folder in it, or a file. Without it, this machine and model_repository.",
        show_default=False,
    ),
]
Everything = Annotated[bool, typer.Option("--all", help="Every check: the machine's too, where PATH is given.")]
Mend = Annotated[
    bool,
    typer.Option("--fix", help="Apply the cures that can be applied; what they replace is kept as NAME.bak."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="With --fix: do not ask.")]
Target = Annotated[
    str,
    typer.Option(
        help="The server that the models are to load in: 'triton:25.05' for that release; without it, Bident.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")]


def doctor(
    path: What = None,
    everything: Everything = False,
    fix: Mend = False,
    yes: Yes = False,
    target: Target = "",
    as_json: Json = False,
) -> None:
    """Look for known pitfalls: what is wrong, why, and what to do about it.

    Nothing of a model is executed. Ends with 1 while something is broken.
    """
    from bident.doctor.examination import examine, is_unread, patient_of, selected, treat
    from bident.doctor.release import read_target

    try:
        read_target(target)
    except ServeError as error:
        raise typer.BadParameter(error.message) from None
    patient = patient_of(path, target) if path else _here(target)
    chosen = selected(only_path=path is not None and not everything)
    found = examine(patient, chosen)
    if not found and not everything and is_unread(patient):
        raise invalid_arg(
            f"{patient.model} is nothing that the doctor reads: models, their folders and files, compose files, .env, "
            "YAML of neighbours, Squid's configuration"
        )
    treated: list[Treated] = []
    if not as_json:
        _show(found, patient, len(chosen))
    if fix and any(finding.fix for finding in found) and _agreed(found, yes=yes or as_json):
        treated, found = treat(patient, chosen, found)
    if as_json:
        screen.show_json(_as_tree(found, treated))
    elif treated:
        _show_treated(treated, found)
    if any(finding.weight.value == "broken" for finding in found):
        raise typer.Exit(1)


def _here(target: str) -> Patient:
    """This machine, and the repository that ``bident up`` would serve or serves, if there is one."""
    from bident.doctor.check import Patient

    record = Record.read(Path(STATE_DIR))
    flags = [flag.partition("=")[2] for flag in (record.flags if record else ()) if "repository=" in flag]
    for place in [*flags, "model_repository"]:
        if Path(place).is_dir():
            return Patient(repository=Path(place).absolute(), target=target)
    return Patient(target=target)


def _agreed(found: list[Finding], *, yes: bool) -> bool:
    """Whether the cures may be applied. Where nobody can be asked, ``--fix`` was the answer."""
    if yes or not sys.stdin.isatty():
        return True
    number = sum(finding.fix is not None for finding in found)
    return typer.confirm(f"Apply {number} cure{'s' if number > 1 else ''}?", default=True)


def _show(found: list[Finding], patient: Patient, checks: int) -> None:
    for finding in found:
        _show_finding(finding)
    what = patient.model or patient.repository
    looked = f"{checks} checks of {screen.text(str(what)) if what else 'this machine'}"
    screen.show(f"{looked}: {_summary(found)}")


def _show_finding(finding: Finding) -> None:
    from rich.panel import Panel
    from rich.table import Table

    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("where", screen.text(finding.where))
    rows.add_row("seen", screen.text(finding.seen))
    rows.add_row("cause", screen.text(finding.cause))
    rows.add_row("cure", screen.text(finding.cure))
    if finding.fix is not None:
        rows.add_row("--fix", screen.text(finding.fix.what))
    colour = _COLOURS[finding.weight.value]
    title = f"[{colour}]{finding.weight.value}[/{colour}] {screen.text(finding.check)}"
    screen.show(Panel(rows, title=title, title_align="left", border_style=colour))


def _summary(found: list[Finding]) -> str:
    if not found:
        return "[green]nothing found[/green]"
    counts = [(weight, sum(finding.weight.value == weight for finding in found)) for weight in _COLOURS]
    text = ", ".join(f"{count} {weight}" for weight, count in counts if count)
    curable = sum(finding.fix is not None for finding in found)
    return f"{text}; --fix can cure {curable}" if curable else text


def _show_treated(treated: list[Treated], left: list[Finding]) -> None:
    still = {finding.key for finding in left}
    rows = screen.table("", "check", "where", "what was done")
    for cure in treated:
        finding = cure.finding
        gone = not cure.problem and finding.key not in still
        sign = "[green]cured[/green]" if gone else "[red]not cured[/red]"
        done = cure.problem or (finding.fix.what if finding.fix else "")
        rows.add_row(sign, finding.check, screen.text(finding.where), screen.text(done))
    screen.show(rows)
    for finding in left:
        _show_finding(finding)
    screen.show(f"Left: {_summary(left)}")


def _as_tree(found: list[Finding], treated: list[Treated]) -> dict[str, object]:
    return {
        "findings": [_finding_tree(finding) for finding in found],
        "treated": [
            {**_finding_tree(cure.finding), "applied": not cure.problem, "problem": cure.problem} for cure in treated
        ],
    }


def _finding_tree(finding: Finding) -> dict[str, object]:
    return {
        "check": finding.check,
        "weight": finding.weight.value,
        "where": finding.where,
        "seen": finding.seen,
        "cause": finding.cause,
        "cure": finding.cure,
        "fix": finding.fix.what if finding.fix else None,
    }
