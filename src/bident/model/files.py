"""Reads the small text files of a model folder, and nothing that is not a file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_file(path: Path) -> bytes:
    """The contents of a regular file, links followed. Raises OSError, for a pipe or a device too.

    Reading a pipe would wait for a writer that may never come, and a device may have no end.
    """
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return file.read()


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
