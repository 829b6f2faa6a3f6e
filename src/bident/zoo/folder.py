"""The folder of a sample model on disk: it appears whole or not at all, and carries a stamp."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STAMP = ".zoo.json"


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """An empty folder to fill, which takes the place of ``folder`` when the block ends without error.

    It is filled beside ``folder``, on the same file system, because only there is a rename atomic.
    The room's name starts with a dot: a server that watches the repository passes over it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".zoo-{folder.name}-", dir=folder.parent) as room:
        fresh, old = Path(room, "new"), Path(room, "old")
        fresh.mkdir()
        yield fresh
        if folder.exists():
            folder.rename(old)
        try:
            fresh.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise


def repository_of(staging: Path) -> Path:
    """The model repository in which a folder that :func:`staged` gave out will stand."""
    return staging.parent.parent


def has_stamp(folder: Path) -> bool:
    """Whether the zoo made ``folder``, in whatever version."""
    return (folder / STAMP).is_file()


def write_stamp(folder: Path, recipe: str, version: int, facts: dict[str, Any]) -> None:
    """Record which recipe made ``folder``, what it found out, and which files it wrote."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    stamp = {"recipe": recipe, "version": version, "facts": facts, "files": files}
    (folder / STAMP).write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")


def read_stamp(folder: Path, recipe: str, version: int) -> dict[str, Any] | None:
    """The facts that this version of ``recipe`` recorded; None if it did not make ``folder``, or files are missing.

    Contents are not compared: a config that its owner has tuned stays as it is.
    """
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(stamp, dict) or (stamp.get("recipe"), stamp.get("version")) != (recipe, version):
        return None
    if not all((folder / name).is_file() for name in stamp["files"]):
        return None
    facts: dict[str, Any] = stamp["facts"]
    return facts


def write_config(folder: Path, text: str) -> None:
    """Write ``config.pbtxt``."""
    (folder / "config.pbtxt").write_text(text.strip() + "\n", encoding="utf-8")


def model_path(folder: Path, file_name: str) -> Path:
    """Where the file of version 1 goes; its folder is made."""
    version = folder / "1"
    version.mkdir(exist_ok=True)
    return version / file_name
