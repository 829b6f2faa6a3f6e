"""Downloads blobs, going on where an earlier attempt ended, and keeps only what is what it should be."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import httpx

from bident.errors import Code, ServeError, invalid_arg
from bident.text.store.blobs import ETAG, PARTIAL, disk_fault, is_full, sync_folder
from bident.text.store.jobs import Report
from bident.text.store.locks import try_lock
from bident.text.store.own import OwnStore
from bident.text.store.web import explained, refused

_CHUNK = 1 << 20
_ATTEMPTS = 5
_PAUSE_S = 0.5
_TICK_S = 0.06
_LONGEST_ETAG = 512
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True)
class Wanted:
    """A file on the web. ``digest`` and ``size`` where they are known; ``label`` names it to people."""

    url: str
    label: str
    digest: str = ""
    size: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What its parts are kept under."""
        return self.digest.removeprefix("sha256:") or hashlib.sha256(self.url.encode()).hexdigest()


class Downloads:
    """Brings files of the web into the store ``own``. Blocks; of one file, one process at a time downloads."""

    def __init__(self, own: OwnStore, client: httpx.Client, report: Report, held: set[str]) -> None:
        self._own = own
        self._client = client
        self._report = report
        self._held = held

    def fetch(self, wanted: Wanted) -> str:
        """Keep the file as a blob; returns its digest. What has come stays for the next attempt.

        Not where it fills the disk. Raises NOT_FOUND, UNAVAILABLE, INVALID_ARG (``digest mismatch``), INTERNAL (disk
        full), CANCELLED.
        """
        if wanted.digest:
            self._own.blobs.hold(wanted.digest, self._held)
            if self._own.blobs.has(wanted.digest):
                size = self._own.blobs.path(wanted.digest).stat().st_size
                _Progress(wanted, self._report)(size, size, last=True)
                return wanted.digest
        path = self._own.blobs.incoming / f"{wanted.key}{PARTIAL}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._alone(path) as file:
                if wanted.digest and self._own.blobs.has(wanted.digest):  # another process was faster
                    path.unlink(missing_ok=True)
                    return wanted.digest
                try:
                    return self._complete(wanted, path, file)
                except OSError as error:
                    if is_full(error):
                        _drop(path)
                    raise
        except OSError as error:
            raise disk_fault(error, self._own.root) from error

    def _alone(self, path: Path) -> BinaryIO:
        """The file of the parts, once no other process works on it."""
        while True:
            file = path.open("a+b")
            if try_lock(file) and _is_at(file, path):
                return file
            file.close()  # held by another, or moved away by it meanwhile
            self._report.pause(0.2)

    def _complete(self, wanted: Wanted, path: Path, file: BinaryIO) -> str:
        part = _Part(file, path.with_suffix(ETAG))
        failed, furthest = 0, part.size
        while True:
            try:
                with explained(f"cannot download {wanted.label}"):
                    self._go_on(wanted, part)
                break
            except ServeError as error:
                failed = 1 if part.size > furthest else failed + 1
                furthest = max(furthest, part.size)
                if error.code is not Code.UNAVAILABLE or failed >= _ATTEMPTS:
                    raise
                self._report.pause(_PAUSE_S * 2**failed)
        digest = part.digest
        if wanted.digest and digest != wanted.digest:
            part.restart("")
            path.unlink(missing_ok=True)
            raise invalid_arg(
                f'digest mismatch, expected "{wanted.digest}", got "{digest}"; {wanted.label} was not kept'
            )
        part.settle()
        self._own.blobs.hold(digest, self._held)
        self._own.blobs.accept(path, digest)
        sync_folder(path.parent)
        self._own.verified.remember(self._own.blobs.path(digest), digest)
        return digest

    def _go_on(self, wanted: Wanted, part: _Part) -> None:
        """One request for what is still missing."""
        if wanted.size and part.size == wanted.size:
            return
        headers = dict(wanted.headers)
        if part.size and (wanted.digest or part.etag):
            headers["Range"] = f"bytes={part.size}-"
            if part.etag:
                headers["If-Range"] = part.etag
        with self._client.stream("GET", wanted.url, headers=headers) as response:
            if response.status_code == 416:  # there is no more than what is here, or the file is another one
                part.restart("")
                raise ServeError(Code.UNAVAILABLE, f"cannot download {wanted.label}: it has changed meanwhile")
            if response.status_code not in (200, 206):
                raise refused(response, f"cannot download {wanted.label}")
            total = self._begin(wanted, part, response)
            self._copy(wanted, part, response, total)
        if total and part.size != total:
            raise ServeError(
                Code.UNAVAILABLE, f"cannot download {wanted.label}: it ended at {part.size} of {total} bytes"
            )

    def _begin(self, wanted: Wanted, part: _Part, response: httpx.Response) -> int:
        """Make ``part`` fit what comes; returns how long the whole file is (0: unknown)."""
        place = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if response.status_code == 206:
            if place is None or int(place[1]) != part.size:
                part.restart("")
                raise ServeError(
                    Code.UNAVAILABLE, f"cannot download {wanted.label}: another part came than was asked for"
                )
            total = wanted.size if place[2] == "*" else int(place[2])
        else:
            part.restart(response.headers.get("ETag", ""))
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdecimal() else wanted.size
        if wanted.size and total and total != wanted.size:
            raise invalid_arg(f"{wanted.label} has {total} bytes, not the {wanted.size} that were announced")
        missing, free = total - part.size, self._own.free_bytes()
        if missing > free:
            raise disk_fault(OSError(errno.ENOSPC, f"{missing} bytes are needed, {free} are free"), self._own.root)
        return total

    def _copy(self, wanted: Wanted, part: _Part, response: httpx.Response, total: int) -> None:
        progress = _Progress(wanted, self._report)
        progress(part.size, total)
        for chunk in response.iter_raw():
            if total and part.size + len(chunk) > total:
                raise invalid_arg(f"{wanted.label} is longer than the {total} bytes that were announced")
            part.write(chunk)
            self._report.check()
            progress(part.size, total)
        progress(part.size, total, last=True)


def _drop(path: Path) -> None:
    """Give back the room that parts take: everybody else needs it too."""
    for each in (path, path.with_suffix(ETAG)):
        with contextlib.suppress(OSError):  # an open file cannot be removed on Windows
            each.unlink()


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether ``path`` still leads to the open ``file``."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


class _Part:
    """What has come of a file: its bytes, their hash, and which version of the file they are of."""

    def __init__(self, file: BinaryIO, note: Path) -> None:
        self._file = file
        self._note = note
        self._sha256 = hashlib.sha256()
        self.size = 0
        self.etag = ""
        with contextlib.suppress(OSError):
            self.etag = note.read_text("ascii", "ignore")[:_LONGEST_ETAG]
        file.seek(0)
        while chunk := file.read(_CHUNK):
            self._sha256.update(chunk)
            self.size += len(chunk)

    @property
    def digest(self) -> str:
        return f"sha256:{self._sha256.hexdigest()}"

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._sha256.update(chunk)
        self.size += len(chunk)

    def restart(self, etag: str) -> None:
        """Forget what has come; what comes next is of the version ``etag``."""
        self._file.seek(0)
        self._file.truncate()
        self._sha256 = hashlib.sha256()
        self.size = 0
        self.etag = "" if etag.startswith("W/") or len(etag) > _LONGEST_ETAG or not etag.isascii() else etag
        if self.etag:
            self._note.write_text(self.etag, "ascii")
        else:
            self._note.unlink(missing_ok=True)

    def settle(self) -> None:
        """See to it that all bytes are on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        if os.name == "nt":  # an open file cannot be moved there
            self._file.close()
        self._note.unlink(missing_ok=True)


class _Progress:
    """Reports bytes, but not more often than somebody could see."""

    def __init__(self, wanted: Wanted, report: Report) -> None:
        self._wanted = wanted
        self._report = report
        self._next = 0.0

    def __call__(self, completed: int, total: int, *, last: bool = False) -> None:
        now = time.monotonic()
        if last or now >= self._next:
            self._next = now + _TICK_S
            digest = self._wanted.digest
            shown = digest.removeprefix("sha256:")[:12] if digest else self._wanted.label
            figures = {"digest": digest or shown, "total": total or completed, "completed": completed}
            self._report(f"pulling {shown}", **figures)
