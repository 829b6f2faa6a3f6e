"""Where a real Triton is installed on this machine, and what of it belongs to this Python."""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bident.errors import Code, ServeError

VARIABLE = "TRITON_HOME"
"""The environment variable that names the installation."""
STUB = "triton_python_backend_stub"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_IN_PACKAGE = Path("pytriton", "tritonserver")
_LIBPYTHON = re.compile(rb"libpython(3\.\d+)\.so")
_INSTALL = (
    "install it into an environment of its own (python3 -m venv triton && triton/bin/pip install nvidia-pytriton) and "
    f"set {VARIABLE} to that, or to the folder of a tritonserver that has bin and backends"
)


@dataclass(frozen=True)
class Stub:
    """The program that runs a ``model.py``; it has one Python's library in it."""

    path: Path
    python: str
    """``3.11``."""
    takes_numpy_2: bool
    """Whether it can read the arrays of numpy 2; if not, they end it."""


@dataclass(frozen=True)
class Home:
    """One installation: ``folder`` holds ``bin``, ``backends`` and more."""

    folder: Path

    @property
    def binary(self) -> Path:
        """The server itself."""
        return self.folder / "bin" / "tritonserver"

    def backends(self) -> list[str]:
        """Names of the backends that are installed."""
        folder = self.folder / "backends"
        return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []

    def libraries(self) -> list[Path]:
        """Folders in which the server and its stub find their libraries, those of this Python among them."""
        bundled = self.folder.parent.parent / "nvidia_pytriton.libs"
        own = sysconfig.get_config_var("LIBDIR")
        known = [self.folder / "lib", bundled, *([Path(own)] if own else ())]
        return [folder for folder in known if folder.is_dir()]

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """``environ``, in which the server's libraries are found first."""
        paths = [*map(str, self.libraries()), environ.get("LD_LIBRARY_PATH", "")]
        return {**environ, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths))}

    def stub(self) -> Stub:
        """The stub for this Python. Raises NOT_FOUND that names the Pythons there are stubs for."""
        stubs = {stub.python: stub for stub in self._stubs()}
        if PYTHON in stubs:
            return stubs[PYTHON]
        there_is = f"there are stubs for {', '.join(sorted(stubs, key=_minor))}" if stubs else "there is none at all"
        raise ServeError(
            Code.NOT_FOUND,
            f"Triton in {self.folder} has no {STUB} for Python {PYTHON}, so no model.py can run ({there_is}); run "
            "Bident with such a Python, or take a Triton that has a stub for this one",
        )

    def _stubs(self) -> Iterator[Stub]:
        places = [self.folder / "backends" / "python" / STUB]
        places += sorted((self.folder / "python_backend_stubs").glob(f"*/{STUB}"))
        for path in places:
            try:
                content = path.read_bytes()
            except OSError:
                continue
            if linked := _LIBPYTHON.search(content):
                # pybind11 names the module that numpy 2 keeps its arrays in from the release on that knows them.
                yield Stub(path, linked[1].decode(), b"numpy._core" in content)

    def site_packages(self) -> Path | None:
        """The packages that were installed with the server, where it comes out of a Python package."""
        return self.folder.parent.parent if self.folder.match(str(_IN_PACKAGE)) else None


def has_gpu() -> bool:
    """Whether this machine has a driver of NVIDIA's."""
    return Path("/dev/nvidiactl").exists()


def _minor(python: str) -> int:
    return int(python.partition(".")[2])


def find_home(environ: Mapping[str, str]) -> Home:
    """The installation to use: ``TRITON_HOME``, else on the PATH, else the package nvidia-pytriton here.

    Raises UNSUPPORTED where no Triton runs, NOT_FOUND with what was looked for where none is installed.
    """
    if sys.platform != "linux":
        raise ServeError(
            Code.UNSUPPORTED,
            f"--engine=triton: NVIDIA builds tritonserver for Linux alone, and this is {sys.platform}; "
            "'bident export compose --engine triton' makes a container of it",
        )
    if named := environ.get(VARIABLE, ""):
        return _named(Path(named).expanduser())
    if found := shutil.which("tritonserver", path=environ.get("PATH")):
        return _with_backends(Home(Path(found).resolve().parent.parent), found)
    package = find_spec("pytriton")
    for place in (package.submodule_search_locations or ()) if package else ():
        if (home := Home(Path(place, "tritonserver"))).binary.is_file():
            return home
    raise ServeError(
        Code.NOT_FOUND,
        f"--engine=triton: no tritonserver is here: {VARIABLE} is not set, none is on the PATH, and the package "
        f"nvidia-pytriton is not installed; {_INSTALL}",
    )


def _with_backends(home: Home, found: str) -> Home:
    if not home.backends():
        raise ServeError(
            Code.NOT_FOUND,
            f"--engine=triton: {found} is on the PATH, but there is no backend in {home.folder / 'backends'}; set "
            f"{VARIABLE} to the folder of the installation, which holds bin and backends",
        )
    return home


def _named(place: Path) -> Home:
    """The installation that ``TRITON_HOME`` means: its folder, or the environment of the package that holds it."""
    for folder in (place, *sorted(place.glob(f"lib/python3*/site-packages/{_IN_PACKAGE}"))):
        if (home := Home(folder.resolve())).binary.is_file():
            return home
    holds = "which does not exist" if not place.exists() else "which has no bin/tritonserver"
    raise ServeError(Code.NOT_FOUND, f"--engine=triton: {VARIABLE} is {place}, {holds}; {_INSTALL}")
