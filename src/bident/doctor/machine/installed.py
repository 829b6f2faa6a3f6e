"""The packages that are installed in this environment, as their metadata tells, and what all checks of them share."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from bident.doctor.machine.surroundings import MachineCheck


class PackagesCheck(MachineCheck):
    """A check of the folders that pip installs into."""

    def __init__(self, folders: tuple[Path, ...] | None = None) -> None:
        super().__init__()
        self._folders = site_packages() if folders is None else folders


def site_packages() -> tuple[Path, ...]:
    """The folders that pip installs into: one, or two where pure and compiled packages are kept apart."""
    paths = sysconfig.get_paths()
    return tuple(dict.fromkeys(Path(paths[kind]) for kind in ("purelib", "platlib")))


def canonical(name: str) -> str:
    """A package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def packages(folder: Path) -> Iterator[tuple[str, Distribution]]:
    """Every package in ``folder`` with its canonical name; one of which two versions are there comes twice."""
    for found in distributions(path=[str(folder)]):
        try:
            name, version = found.metadata["Name"], found.version
        except (OSError, ValueError, KeyError):
            continue  # broken metadata: pip cannot tell either
        if name and version:
            yield canonical(name), found
