"""The interpreter that runs, and the one that people think runs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from bident.doctor.check import Finding, Patient
from bident.doctor.machine.surroundings import MachineCheck, Surroundings

_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables that name the environment that a shell has activated; the first counts, it was activated within."""


class WrongInterpreter(MachineCheck):
    """Two environments at once: packages go into one, and the other runs."""

    name = "wrong-interpreter"
    title = "The active environment is another one than Bident runs from"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        prefix = self._here.prefix
        found = shutil.which("bident", path=self._here.environ.get("PATH", ""))
        commands = prefix / ("Scripts" if self._here.platform == "win32" else "bin")
        if found and not _is_same(Path(found).resolve().parent, commands):  # pipx and uv link to it
            yield self._risk(
                found,
                f"'bident' on the PATH is {found}, and this one runs from {prefix}",
                "another environment's commands come first on the PATH: it has other packages and another version",
                f"{self._activation()}, or call {commands / 'bident'}",
            )
        variable = next((name for name in _ENVIRONMENTS if self._here.environ.get(name)), "")
        active = self._here.environ.get(variable, "")
        if active and not _is_same(Path(active), prefix):
            yield self._risk(
                f"{variable}={active}",
                f"the active environment is {active}, and this Bident runs from {prefix}",
                "pip installs into the active environment; models run with the packages of the other",
                f"{self._activation()}, or install with {commands / 'python'} -m pip",
            )

    def _activation(self) -> str:
        if self._here.platform == "win32":
            return rf"{self._here.prefix}\Scripts\activate"
        return f". {self._here.prefix / 'bin' / 'activate'}"


class SharedInterpreter(MachineCheck):
    """The system's Python, which every other program's packages are in as well."""

    name = "shared-interpreter"
    title = "Bident runs in an interpreter that other programs share"

    def __init__(self, surroundings: Surroundings | None = None, base: Path = Path(sys.base_prefix)) -> None:
        super().__init__(surroundings)
        self._base = base

    def examine(self, patient: Patient) -> Iterator[Finding]:
        is_conda = (self._here.prefix / "conda-meta").is_dir()
        if self._here.prefix == self._base and not is_conda:
            yield self._note(
                self._here.prefix,
                "packages are installed into the system's Python, not into an environment of their own",
                "whatever else is installed there may change numpy or protobuf under the models",
                "python3 -m venv .venv and install there; keep the versions: .venv/bin/pip freeze > requirements.lock",
            )


class PythonPath(MachineCheck):
    """Folders of modules that come before the environment's own."""

    name = "python-path"
    title = "PYTHONPATH or PYTHONHOME changes which packages are imported"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        if home := self._here.environ.get("PYTHONHOME"):
            yield self._broken(
                f"PYTHONHOME={home}",
                "the standard library is taken from there, for every Python that is started",
                "it is meant for one interpreter, and each environment and each worker of a model has its own",
                "unset PYTHONHOME",
            )
        for text in self._here.environ.get("PYTHONPATH", "").split(os.pathsep):
            if text and (seen := _shadowed(Path(text))):
                yield self._risk(
                    f"PYTHONPATH: {text}",
                    seen,
                    "PYTHONPATH comes before the packages of the environment, also in the workers of Python models",
                    "unset PYTHONPATH; a model that needs more packages names them with EXECUTION_ENV_PATH in its "
                    "config.pbtxt",
                )


def _shadowed(folder: Path) -> str:
    """What is wrong with ``folder`` on the path of modules; empty if nothing is."""
    if not folder.is_absolute():
        return f"{folder} is relative: it depends on the folder a server is started in"
    other = f"python{sys.version_info.major}.{sys.version_info.minor}"
    named = next((part for part in folder.parts if part.startswith("python3.")), other)
    if named != other:
        return f"{folder} is for {named}, and this is {other}"
    hidden = [name for name in ("numpy", "google", "onnxruntime", "tritonclient", "bident") if (folder / name).is_dir()]
    hidden += [file for file in ("triton_python_backend_utils.py",) if (folder / file).is_file()]
    return f"its {', '.join(hidden)} hides the installed one" if hidden else ""


class LibraryPath(MachineCheck):
    """Folders of compiled libraries that come before the system's and the packages' own."""

    name = "library-path"
    title = "LD_LIBRARY_PATH changes which compiled libraries are loaded"

    _LIBRARIES = (
        "libstdc++.",
        "libgcc_s.",
        "libgomp.",
        "libomp.",
        "libssl.",
        "libcrypto.",
        "libprotobuf.",
        "libpython3",
    )

    def examine(self, patient: Patient) -> Iterator[Finding]:
        variable = "DYLD_LIBRARY_PATH" if self._here.platform == "darwin" else "LD_LIBRARY_PATH"
        value = self._here.environ.get(variable, "")
        for text in value.split(os.pathsep) if value else ():
            if seen := self._trouble(text):
                yield self._risk(
                    f"{variable}: {text}",
                    seen,
                    f"{variable} comes before the libraries that the packages were tested with, for every program",
                    f"unset {variable}; where one program needs it, set it for that one alone: {variable}=... PROGRAM",
                )

    def _trouble(self, text: str) -> str:
        folder = Path(text)
        if not text or not folder.is_absolute():
            return f"'{text}' stands for a folder below the one a program is started in"
        try:
            names = sorted(path.name for path in folder.iterdir())
        except OSError as error:
            return f"it cannot be read: {error.strerror}"
        found = [name for name in names if name.startswith(self._LIBRARIES) and (".so" in name or ".dylib" in name)]
        return f"it has {', '.join(found[:4])}, in place of the system's" if found else ""


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.resolve() == other.resolve()
    except OSError:
        return False
