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
    return tuple(sorted(_marks(str(directory), "", 0, set()), key=str))


def _marks(directory: str, below: str, depth: int, seen: set[tuple[int, int]]) -> Iterator[Mark]:
    try:
        with os.scandir(directory) as entries:
            found = sorted((entry for entry in entries if not _ignored(entry.name)), key=lambda entry: entry.name)
    except OSError as error:
        yield (below, "unreadable", error.errno)
        return
    for entry in found:
        yield from _mark(entry, f"{below}/{entry.name}", depth, seen)


def _mark(entry: os.DirEntry[str], name: str, depth: int, seen: set[tuple[int, int]]) -> Iterator[Mark]:
    try:
        status = entry.stat()
        if not status.st_ino:  # Windows tells it only when asked for a path
            status = Path(entry.path).stat()
        is_folder = entry.is_dir()
    except OSError as error:  # a broken link, or a file that has just gone
        yield (name, "unreadable", error.errno)
        return
    if not is_folder:
        # The inode tells a file from another of the same size and time that was moved in its place.
        yield (name, status.st_mtime_ns, status.st_size, status.st_ino)
        return
    own = (status.st_dev, status.st_ino)
    if own in seen or depth == _DEEPEST:
        # Looked into once in the whole walk: links between folders make more paths than could ever be walked.
        yield (name, "folder", own)
        return
    seen.add(own)
    yield (name,)
    yield from _marks(entry.path, name, depth + 1, seen)


def _ignored(name: str) -> bool:
    return name.startswith(".") or name.endswith("~") or name == "__pycache__" or (name[0] == name[-1] == "#")
