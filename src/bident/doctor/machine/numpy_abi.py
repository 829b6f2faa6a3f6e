"""Modules that were compiled for numpy 1 beside a numpy 2."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from bident.doctor.check import Finding, Patient
from bident.doctor.machine.installed import PackagesCheck, packages

_COMPILED = ("*.so", "*.pyd")
_OLD_DOOR = b"numpy.core._multiarray_umath"
_NEW_DOOR = b"numpy._core._multiarray_umath"
"""The module through which compiled code reaches numpy: headers of numpy 2 know both names, those of 1 the old one."""


class NumpyAbi(PackagesCheck):
    """Reads the binaries instead of importing them: importing is what crashes."""

    name = "numpy-abi"
    title = "A package was compiled for numpy 1, and numpy 2 is installed"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        for folder in self._folders:
            version = next((found.version for name, found in packages(folder) if name == "numpy"), "")
            if version and int(version.partition(".")[0]) >= 2:
                yield from self._examine(folder, version)

    def _examine(self, folder: Path, version: str) -> Iterator[Finding]:
        seen: dict[str, Path] = {}
        for pattern in _COMPILED:
            for path in folder.rglob(pattern):
                package = path.relative_to(folder).parts[0]
                if package not in seen and package != "numpy" and _is_for_numpy_1(path):
                    seen[package] = path
        for package, path in sorted(seen.items()):
            yield self._broken(
                package,
                f"{path.name} was compiled for numpy 1, and numpy {version} is installed",
                "the binary interfaces of numpy 1 and 2 differ: the module fails to import, or crashes",
                f"python -m pip install --upgrade {package.partition('.')[0]}; where no newer one is compiled for "
                'numpy 2, give it an environment of its own with "numpy<2"',
            )


def _is_for_numpy_1(path: Path) -> bool:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(_OLD_DOOR) >= 0 and content.find(_NEW_DOOR) < 0
    except (OSError, ValueError):  # unreadable, or empty
        return False
