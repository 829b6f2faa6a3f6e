"""The files of a store, each under the sha256 of its content. A file is there whole or not at all.

Bytes are first written to ``incoming/``, next to ``blobs/``, and move over once they are on the disk
and are what they were said to be. What a killed process leaves in ``incoming/`` holds no lock and is
swept away when the store is next opened; parts of downloads stay for some days, to be gone on with.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from bident.errors import Code, ServeError, invalid_arg
from bident.text.store.locks import try_lock

PARTIAL = ".partial"
ETAG = ".etag"
_CHUNK = 1 << 20
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_SETTLED_S = 10.0
"""A younger file without a lock may be between being made and being locked."""
_PARTIAL_KEPT_S = 7 * 86400.0
_FOLDER_KEPT_S = 86400.0


def parse_digest(text: str) -> str:
    """``text`` as ``sha256:<64 hex digits>``. Raises INVALID_ARG."""
    match = _DIGEST.fullmatch(text.lower())
    if match is None:
        raise invalid_arg(f'invalid digest format: "{text[:80]}" is not sha256: and 64 hexadecimal digits')
    return f"sha256:{match[1]}"


def digest_of(content: bytes) -> str:
    """``sha256:`` and the hash of ``content``."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def file_digest(path: Path) -> str:
    """Blocks for as long as reading the file takes."""
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            sha256.update(chunk)
    return f"sha256:{sha256.hexdigest()}"


def blob_name(digest: str) -> str:
    """The name of a blob's file: as Ollama has it, with a dash, since Windows forbids the colon."""
    return digest.replace(":", "-")


def is_full(error: OSError) -> bool:
    """Whether it was room that lacked."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def disk_fault(error: OSError, folder: Path) -> ServeError:
    """What an ``error`` of writing below ``folder`` means to who asked for it."""
    if is_full(error):
        return ServeError(Code.INTERNAL, f"no space left on device: nothing was kept; make room below {folder}")
    return ServeError(Code.INTERNAL, f"cannot write to {folder}: {error.strerror or error}")


class Blobs:
    """The blobs below ``root``. Safe from several threads and processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.incoming = root / "incoming"
        self._folder = root / "blobs"
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def path(self, digest: str) -> Path:
        """Where the blob is or would be."""
        return self._folder / blob_name(digest)

    def has(self, digest: str) -> bool:
        return self.path(digest).is_file()

    def digests(self) -> Iterator[str]:
        """Of every blob there is; other files are left alone."""
        if self._folder.is_dir():
            for entry in os.scandir(self._folder):
                if _DIGEST.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    yield entry.name.replace("-", ":")

    def remove(self, digest: str) -> bool:
        """Delete the blob unless somebody holds it. False where it stays."""
        with self._lock:
            if self._held[digest]:
                return False
            self.path(digest).unlink(missing_ok=True)
            return True

    @contextmanager
    def holding(self) -> Iterator[set[str]]:
        """What is added to the set with :meth:`hold` is not removed until the block ends."""
        held: set[str] = set()
        try:
            yield held
        finally:
            with self._lock:
                self._held.subtract(held)
                self._held += Counter()  # drops what is held by nobody

    def hold(self, digest: str, held: set[str]) -> None:
        with self._lock:
            if digest not in held:
                held.add(digest)
                self._held[digest] += 1

    def writer(self) -> BlobWriter:
        """A new blob to be written. Raises INTERNAL where the store cannot be written to."""
        return BlobWriter(self)

    def put(self, chunks: Iterable[bytes], expected: str | None = None) -> tuple[str, int]:
        """Keep ``chunks``; returns digest and size. Raises INVALID_ARG where they are not ``expected``."""
        with self.writer() as writer:
            for chunk in chunks:
                writer.write(chunk)
            return writer.commit(expected), writer.size

    def accept(self, path: Path, digest: str) -> None:
        """Move the file ``path`` of ``incoming`` in as the blob ``digest``, which the caller has made sure it is."""
        try:
            target = self.path(digest)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
            sync_folder(target.parent)
        except OSError as error:
            raise disk_fault(error, self.root) from error

    def sweep(self) -> None:
        """Remove what writers that are gone have left in ``incoming``."""
        if not self.incoming.is_dir():
            return
        for path in self.incoming.iterdir():
            try:
                age = time.time() - path.stat().st_mtime
                if path.is_dir():
                    if age > _FOLDER_KEPT_S:
                        shutil.rmtree(path, ignore_errors=True)
                elif age > (_PARTIAL_KEPT_S if path.suffix in (PARTIAL, ETAG) else _SETTLED_S):
                    with path.open("rb") as file:
                        left = try_lock(file)
                    if left:
                        path.unlink()
            except OSError:  # gone meanwhile, or in use where open files cannot be removed
                continue


class BlobWriter:
    """Takes the bytes of one blob and keeps them when all are there. As a context, it leaves nothing behind."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._sha256 = hashlib.sha256()
        self.size = 0
        self._file: BinaryIO | None = None
        try:
            blobs.incoming.mkdir(parents=True, exist_ok=True)
            number, name = tempfile.mkstemp(dir=blobs.incoming, suffix=".blob")
        except OSError as error:
            raise disk_fault(error, blobs.root) from error
        self._path = Path(name)
        self._file = os.fdopen(number, "wb")
        try_lock(self._file)

    def write(self, chunk: bytes) -> None:
        """Raises INTERNAL when the disk is full."""
        assert self._file is not None
        try:
            self._file.write(chunk)
        except OSError as error:
            raise disk_fault(error, self._blobs.root) from error
        self._sha256.update(chunk)
        self.size += len(chunk)

    def commit(self, expected: str | None = None) -> str:
        """Make the blob visible; returns its digest. Raises INVALID_ARG where it is not the ``expected`` one."""
        assert self._file is not None
        digest = f"sha256:{self._sha256.hexdigest()}"
        if expected is not None and digest != expected:
            raise invalid_arg(f'digest mismatch, expected "{expected}", got "{digest}"')
        try:
            self._file.flush()
            os.fchmod(self._file.fileno(), 0o644) if hasattr(os, "fchmod") else None
            os.fsync(self._file.fileno())
            if os.name == "nt":  # an open file cannot be moved there
                self._file.close()
        except OSError as error:
            raise disk_fault(error, self._blobs.root) from error
        self._blobs.accept(self._path, digest)
        return digest

    def close(self) -> None:
        """Give up what has not been committed."""
        if self._file is not None:
            file, self._file = self._file, None
            self._path.unlink(missing_ok=True) if os.name != "nt" else None
            with contextlib.suppress(OSError):  # it writes what is left: to a disk that may be full
                file.close()
            self._path.unlink(missing_ok=True)

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def write_file(path: Path, content: bytes, staging: Path) -> None:
    """Replace ``path`` by ``content``, written in ``staging``, in one step that survives a crash. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staging.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=staging, suffix=".file")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a file's new name last, where the system knows how to."""
    if os.name != "nt":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
