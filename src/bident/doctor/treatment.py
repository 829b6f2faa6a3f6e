"""Changes files so that nothing is lost: what is replaced stays beside it, and a file is never half written."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from itertools import count
from pathlib import Path

from bident.errors import Code, ServeError
from bident.local.files import replacing

_OWNER_MAY_WRITE = 0o200


def replace_file(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``; what was there becomes ``NAME.bak`` (``NAME.bak1`` where that exists).

    Raises ServeError, and then nothing has changed.
    """
    _refuse_read_only(path)

    def replace() -> None:
        with replacing(path, content) as draft:
            mode = 0o644
            if path.exists():
                mode = stat.S_IMODE(path.stat().st_mode)
                shutil.copy2(path, backup_of(path))
            draft.chmod(mode)

    _reporting(replace, f"write {path}")


def move(source: Path, target: Path) -> None:
    """Rename ``source``, a file or a folder, to ``target``, which must not exist. Raises ServeError."""
    _refuse_read_only(source)
    if target.exists() or target.is_symlink():
        raise ServeError(Code.ALREADY_EXISTS, f"{source} cannot become {target}: that exists; compare the two")

    def rename() -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)

    _reporting(rename, f"rename {source} to {target}")


def make_folder(path: Path) -> None:
    """Make an empty folder. Raises ServeError."""
    _refuse_read_only(path)
    _reporting(lambda: path.mkdir(parents=True, exist_ok=True), f"make {path}")


def put_away(path: Path) -> None:
    """Let ``path`` be known as ``NAME.bak`` alone. Raises ServeError."""
    move(path, backup_of(path))


def backup_of(path: Path) -> Path:
    """A name beside ``path`` that is free: ``NAME.bak``, ``NAME.bak1``, ..."""
    for number in count():
        candidate = path.with_name(f"{path.name}.bak{number or ''}")
        if not (candidate.exists() or candidate.is_symlink()):
            return candidate
    raise AssertionError  # count() has no end


def _refuse_read_only(path: Path) -> None:
    """By what the owner has marked: a library that is shared stays as it is, even for root, who may write anywhere."""
    for place in (path, path.parent):
        try:
            mode = place.stat().st_mode
        except OSError:
            continue
        if not mode & _OWNER_MAY_WRITE:
            raise ServeError(Code.UNAVAILABLE, f"{place} is read-only and stays as it is; copy the model and mend that")


def _reporting(work: Callable[[], object], what: str) -> None:
    try:
        work()
    except OSError as error:
        raise ServeError(Code.UNAVAILABLE, f"cannot {what}: {error.strerror or error}") from None
