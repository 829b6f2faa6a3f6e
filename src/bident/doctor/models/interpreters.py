"""The Python that a model would run under, and what can be imported there; nothing is started to find out."""

from __future__ import annotations

import importlib.util
import lzma
import re
import sys
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bident.backends.python.environment import MODEL_DIRECTORY, PARAMETER, PYTHONS
from bident.doctor.models.case import Case

_LIBRARY = re.compile(r"(?:^|/)lib/python(\d+)\.(\d+)/site-packages/([^/]+)")
_SUFFIX = re.compile(r"\.(?:py|pyc|so|pyd|abi3\.so|cpython-.*\.so)$")
_MOST_MEMBERS = 300_000


@dataclass(frozen=True)
class Interpreter:
    """``version`` is None where nothing tells it. Without ``modules``, it is the one that runs this."""

    where: str
    version: tuple[int, int] | None
    modules: frozenset[str] | None = None
    fault: str = ""
    """Why it cannot be used."""

    def has(self, package: str) -> bool:
        """Whether a top-level package can be imported. Looks for files, and imports nothing."""
        if self.modules is not None:
            return package in self.modules
        try:
            return importlib.util.find_spec(package) is not None
        except (ImportError, ValueError, AttributeError):
            return package in sys.modules


@dataclass
class _Contents:
    version: tuple[int, int] | None = None
    modules: set[str] = field(default_factory=set)

    def note(self, name: str) -> None:
        found = _LIBRARY.search(name)
        if found:
            self.version = int(found[1]), int(found[2])
            self.modules.add(_SUFFIX.sub("", found[3].partition(".cpython-")[0]))


def interpreter_of(case: Case) -> Interpreter:
    """The interpreter of a Python model: what ``EXECUTION_ENV_PATH`` names, else the server's."""
    parameters = case.config.parameters if case.config else {}
    named = parameters.get(PARAMETER, "")
    if not named:
        return Interpreter(sys.executable, (sys.version_info.major, sys.version_info.minor))
    if named.startswith(MODEL_DIRECTORY):
        named = str(case.directory) + named[len(MODEL_DIRECTORY) :]
    path = Path(named)
    try:
        if path.is_dir():
            return _of_folder(path)
        if not path.is_file():
            return Interpreter(named, None, frozenset(), "does not exist")
        return _of_archive(path)
    except (OSError, ValueError) as error:
        return Interpreter(named, None, frozenset(), f"cannot be looked at: {error}")


def _of_folder(folder: Path) -> Interpreter:
    if not any((folder / name).exists() for name in PYTHONS):
        return Interpreter(str(folder), None, frozenset(), "holds no Python: there is no bin/python in it")
    contents = _Contents()
    for entry in _libraries(folder):
        contents.note(entry)
    system = folder / "pyvenv.cfg"
    if not contents.modules or (system.is_file() and "include-system-site-packages = true" in _text(system)):
        # Whatever else it can see lies outside, where nobody here knows the way.
        return Interpreter(str(folder), contents.version)
    return Interpreter(str(folder), contents.version, frozenset(contents.modules))


def _libraries(folder: Path) -> Iterator[str]:
    for library in folder.glob("lib/python*.*/site-packages"):
        for entry in library.iterdir():
            yield entry.as_posix()
    for entry in (folder / "Lib" / "site-packages").glob("*"):  # Windows does not say which version
        yield f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/{entry.name}"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").lower()


def _of_archive(path: Path) -> Interpreter:
    contents = _Contents()
    try:
        with tarfile.open(path) as archive:
            for count, member in enumerate(archive):
                contents.note(member.name)
                if count > _MOST_MEMBERS:
                    break
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        return Interpreter(str(path), None, frozenset(), f"is no archive that can be read ({reason})")
    return Interpreter(str(path), contents.version, frozenset(contents.modules) or None)
