"""Folders for models that clients send: made one by one, deleted one by one, never anything else.

A server has one root, each override a folder of its own below it. The root is locked for as long as
its server lives, whichever way that ends, so a later start can tell what a killed one has left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing is swept there
    fcntl = None  # type: ignore[assignment]

_ROOT = "bident-overlays-"
_FOLDER = "override-"
_LOCK = ".lock"


@dataclass(frozen=True)
class Scratch:
    """One fresh folder, ``path``, right below ``root``."""

    root: Path
    path: Path

    @classmethod
    def make(cls, root: Path) -> Scratch:
        """A new folder below ``root``, which is made if need be. Raises OSError."""
        root.mkdir(parents=True, exist_ok=True)
        return cls(root, Path(tempfile.mkdtemp(prefix=_FOLDER, dir=root)))

    def remove(self) -> None:
        """Delete the folder and what is in it; once is enough, twice does no harm."""
        if self.path.parent != self.root or not self.path.name.startswith(_FOLDER):
            raise ValueError(f"{self.path} is no folder that was made below {self.root}")
        shutil.rmtree(self.path, ignore_errors=True)


@dataclass
class ScratchRoot:
    """The root of one server."""

    path: Path
    _lock: int | None = field(default=None, repr=False)

    @classmethod
    def make(cls, within: Path | None = None) -> ScratchRoot:
        """A new, locked root in ``within`` (the system's temporary folder). Raises OSError.

        Roots in ``within`` whose server has ended without deleting them are deleted first.
        """
        parent = within or Path(tempfile.gettempdir())
        _sweep(parent)
        root = cls(Path(tempfile.mkdtemp(prefix=_ROOT, dir=parent)))
        if fcntl is not None:
            # Locked before it has its name: whoever finds the name finds it locked.
            nameless = root.path / f"{_LOCK}.new"
            root._lock = os.open(nameless, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            with contextlib.suppress(OSError):  # a file system without locks: never swept
                fcntl.flock(root._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                nameless.rename(root.path / _LOCK)
        return root

    def remove(self) -> None:
        """Delete the root and every folder below it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _sweep(parent: Path) -> None:
    """Delete this user's roots in ``parent`` that nobody holds a lock on."""
    if fcntl is None:
        return
    try:
        left = [path for path in parent.iterdir() if path.name.startswith(_ROOT)]
    except OSError:
        return
    for path in left:
        with contextlib.suppress(OSError):
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                _delete_if_abandoned(path)


def _delete_if_abandoned(path: Path) -> None:
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError: its server lives
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)
