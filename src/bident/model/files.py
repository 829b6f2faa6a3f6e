"""Opens the files of a model folder, and nothing that is not a file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

LARGEST_PROTOBUF_BYTES = 2 << 30
"""What protobuf reads at most: a larger file can be no ONNX model, and need not be read to see it."""

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def read_file(path: Path) -> bytes:
    """The contents of a regular file, links followed. Raises OSError, for a pipe or a device too."""
    with open_file(path) as file:
        return file.read()


def open_file(path: Path) -> BinaryIO:
    """A regular file opened for reading, links followed. Raises OSError, for a pipe or a device too.

    Reading a pipe would wait for a writer that may never come, and a device may have no end.
    """
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller closes it
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def kind_of(mode: int) -> str:
    """What ``st_mode`` says something is that is no regular file, in words; "" for a regular file."""
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "something else")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
