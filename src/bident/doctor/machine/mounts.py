"""The file system that a folder is on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
LAYERS = frozenset({"overlay", "aufs", "fuse-overlayfs"})
"""What a container's own files are on; they go with the container."""


class Mount(NamedTuple):
    """A mounted file system."""

    point: Path
    kind: str
    options: frozenset[str]


Mounts = Callable[[], Iterable[Mount]]


def mounts_here() -> list[Mount]:
    """All of this machine's; none where the system does not tell."""
    try:
        found = psutil.disk_partitions(all=True)
    except OSError:
        return []
    return [Mount(Path(each.mountpoint), each.fstype, frozenset(each.opts.split(","))) for each in found]


def mount_of(path: Path, mounts: Iterable[Mount]) -> Mount | None:
    """The one that ``path``, which need not exist, is on."""
    whole = path.expanduser().absolute()
    around = [mount for mount in mounts if whole.is_relative_to(mount.point)]
    # Of two that are mounted at one place the later one is seen.
    return max(reversed(around), key=lambda mount: len(mount.point.parts), default=None)


def nearest(path: Path) -> Path:
    """``path``, or the innermost folder around it that exists."""
    whole = path.expanduser().absolute()
    return next((folder for folder in (whole, *whole.parents) if folder.exists()), whole)
