"""The Python that a stub finds: this environment's packages, with a numpy that the stub can read.

A stub has an interpreter in it that ignores PYTHONPATH and takes the packages of the first ``python3`` on
the PATH. So it is given an environment of its own: the packages of this one, and before them, where the
stub was built for numpy 1, a numpy 1. Other packages do not mind: built for numpy 2, they run on both.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, version
from pathlib import Path

from bident.errors import Code, ServeError
from bident.ship.triton.home import PYTHON, Home, Stub
from bident.wheels import unpack_wheels

_LAST_WITH_NUMPY_1 = (3, 12)
_OLD = "numpy<2"


def make_environment(home: Home, stub: Stub, folder: Path, cache: Path) -> Path:
    """Make the environment in ``folder``; the folder of its ``python3``, for the PATH.

    A numpy 1 that nobody has is fetched and kept in ``cache``. Raises ServeError where it cannot be had.
    """
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    site_packages = folder / "lib" / f"python{PYTHON}" / "site-packages"
    for entry in _old_numpy(home, cache) if not stub.takes_numpy_2 and _major("numpy") > 1 else ():
        (site_packages / entry.name).symlink_to(entry)
    ours = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    # As a line of code, so that the .pth files of this environment count too: editable installs are such.
    lines = [f"import site; site.addsitedir({path!r})\n" for path in ours]
    (site_packages / "bident-packages.pth").write_text("".join(lines), encoding="utf-8")
    return folder / "bin"


def _old_numpy(home: Home, cache: Path) -> Iterator[Path]:
    """The folders of a numpy 1 for this Python: of the environment that the server is from, else of ``cache``."""
    kept = cache / "triton" / f"numpy1-{PYTHON}"
    for place in (home.site_packages(), kept):
        if place is not None and (found := _numpy_in(place)):
            yield from found
            return
    if sys.version_info[:2] > _LAST_WITH_NUMPY_1:
        raise ServeError(
            Code.UNSUPPORTED,
            f"the Python backend of Triton in {home.folder} was built for numpy 1, which there is for Python "
            f"{'.'.join(map(str, _LAST_WITH_NUMPY_1))} at most, and this is {PYTHON}; run Bident with an older Python, "
            "or take a newer Triton",
        )
    _fetch(kept)
    yield from _numpy_in(kept)


def _fetch(kept: Path) -> None:
    """Put a numpy 1 into ``kept``, whole or not at all. Raises UNAVAILABLE where none is to be had."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{kept.name}-", dir=kept.parent) as room:
        fresh = Path(room, "new")
        unpack_wheels([_OLD], fresh)
        with contextlib.suppress(OSError):  # another server was quicker
            fresh.rename(kept)


def _numpy_in(place: Path) -> list[Path]:
    """The folders of the numpy 1 in ``place``; empty where it is none, or one for another Python."""
    for distribution in Distribution.discover(name="numpy", path=[str(place)]):
        has_binary = any((place / "numpy").glob(f"core/_multiarray_umath.cpython-{PYTHON.replace('.', '')}*"))
        if distribution.version.startswith("1.") and has_binary:
            return [entry for entry in place.iterdir() if entry.name.split("-")[0].split(".")[0] == "numpy"]
    return []


def _major(package: str) -> int:
    return int(version(package).partition(".")[0])
