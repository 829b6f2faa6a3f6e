"""Compiled libraries that the system cannot load: OpenMP is missing, the C library is too old, or something else."""

from __future__ import annotations

import importlib.util
import json
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from bident.doctor.check import Finding, Patient
from bident.doctor.machine.surroundings import MachineCheck, Surroundings

_LIBRARIES = {
    "lightgbm": ("lib/lib_lightgbm.*",),
    "numpy": ("_core/_multiarray_umath.*",),
    "onnxruntime": ("capi/onnxruntime_pybind11_state.*",),
    "treelite": ("lib/libtreelite.*",),
    "xgboost": ("lib/libxgboost.*",),
    "xllamacpp": ("xllamacpp.abi3.so", "xllamacpp.*.pyd"),
}
"""The compiled library of each package, by the package's module."""

_TRY = """
import ctypes, json, sys
said = {}
for path in sys.argv[1:]:
    try:
        ctypes.CDLL(path)
    except OSError as error:
        said[path] = str(error)
print(json.dumps(said))
"""
_SECONDS = 60
_OPENMP = re.compile(r"lib(gomp|omp|iomp5)\b")
_LIBC = re.compile(r"(GLIBC|GLIBCXX|CXXABI)_[0-9.]+")

Errors = Callable[[], Mapping[str, str]]
"""What the system's loader says of the libraries that it cannot load, by path."""


def loader_errors(paths: tuple[Path, ...]) -> dict[str, str]:
    """Load every library of ``paths`` in a process of its own, which may crash, and report what fails."""
    command = [sys.executable, "-I", "-c", _TRY, *map(str, paths)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        said: dict[str, str] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    return said


@cache
def _errors_here() -> dict[str, str]:
    return loader_errors(tuple(_installed_libraries()))


def _installed_libraries() -> Iterator[Path]:
    for module, patterns in _LIBRARIES.items():
        spec = importlib.util.find_spec(module)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for pattern in patterns:
                yield from sorted(Path(folder).glob(pattern))


class _LoaderCheck(MachineCheck):
    """A check that reads the loader's words; there is nothing else to go by."""

    def __init__(self, surroundings: Surroundings | None = None, errors: Errors = _errors_here) -> None:
        super().__init__(surroundings)
        self._errors = errors


class OpenMp(_LoaderCheck):
    """The OpenMP library belongs to the system, not to a Python environment."""

    name = "openmp"
    title = "The OpenMP library is missing"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        for path, error in self._errors().items():
            if found := _OPENMP.search(error):
                yield self._broken(
                    path,
                    f"it needs {found[0]}, which the system does not have",
                    "it computes on several cores through OpenMP, a library of the system: no Python environment "
                    "brings it",
                    self._cure(),
                )

    def _cure(self) -> str:
        if self._here.platform == "darwin":
            return "brew install libomp"
        return "apt-get install libgomp1 (Debian, Ubuntu), dnf install libgomp (Fedora), apk add libgomp (Alpine)"


class SystemLibrary(_LoaderCheck):
    """Wheels name the oldest C library they run with, and this one is older, or another."""

    name = "system-library"
    title = "The system's C or C++ library is too old for an installed package"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        for path, error in self._errors().items():
            if found := _LIBC.search(error):
                yield self._broken(
                    path,
                    f"it needs {found[0]}; this system has {' '.join(platform.libc_ver()) or 'another C library'}",
                    "the package was made for a newer system: the environment was copied from one, or the installer "
                    "was told to ignore the platform",
                    "make the environment anew on this machine (python -m venv), so that pip picks what fits, or use "
                    "a newer system",
                )


class NativeLibrary(_LoaderCheck):
    """Whatever else keeps a library from loading."""

    name = "native-library"
    title = "A compiled library of an installed package does not load"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        for path, error in self._errors().items():
            if not _OPENMP.search(error) and not _LIBC.search(error):
                yield self._broken(
                    path,
                    error.replace(f"{path}: ", ""),
                    "the file is damaged, made for another processor, or needs a library that is missing",
                    "python -m pip install --force-reinstall --no-deps PACKAGE; if a library is named, install the "
                    "system's package that has it",
                )
