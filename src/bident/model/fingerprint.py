"""Notices changes on disk without reading a file, for ``--model-control-mode=poll``."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from pathlib import Path

_DEEPEST = 32

Mark = tuple[Hashable, ...]


def fingerprint(directory: Path) -> Hashable:
    """A value that differs as soon as any file below ``directory`` is added, removed or written.

    Symbolic links are followed. Editors' swap and backup files, other hidden names and Python's
    ``__pycache__`` (written by loading the model) do not count; nor does the time of a folder, which
    those would change. What cannot be read is part of the value instead of an error.
    """
    return tuple(sorted(_marks(str(directory), "", ()), key=str))


def _marks(directory: str, below: str, parents: tuple[tuple[int, int], ...]) -> Iterator[Mark]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if not _ignored(entry.name):
                    yield from _mark(entry, f"{below}/{entry.name}", parents)
    except OSError as error:
        yield (below, "unreadable", error.errno)


def _mark(entry: os.DirEntry[str], name: str, parents: tuple[tuple[int, int], ...]) -> Iterator[Mark]:
    try:
        status = entry.stat()
        is_folder = entry.is_dir()
    except OSError as error:  # a broken link, or a file that has just gone
        yield (name, "unreadable", error.errno)
        return
    if not is_folder:
        # The inode tells a file from another of the same size and time that was moved in its place.
        yield (name, status.st_mtime_ns, status.st_size, status.st_ino)
        return
    yield (name,)
    own = (status.st_dev, status.st_ino)
    if own not in parents and len(parents) < _DEEPEST:  # a link to a folder above would never end
        yield from _marks(entry.path, name, (*parents, own))


def _ignored(name: str) -> bool:
    return name.startswith(".") or name.endswith("~") or name == "__pycache__" or (name[0] == name[-1] == "#")
