"""Our own store: the one place that models are added to and removed from."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bident.errors import Code, ServeError
from bident.text.names import ModelName
from bident.text.store.blobs import Blobs, digest_of, disk_fault, sync_folder, write_file
from bident.text.store.locks import try_lock
from bident.text.store.manifests import Manifest, manifest_path, read_manifest, stored_names
from bident.text.store.shelf import LibraryShelf
from bident.text.store.verified import Verified

_LOCK_S = 60.0
_CHUNK = 1 << 20


class OwnStore(LibraryShelf):
    """The library below ``root``, made as soon as something is kept. All methods block."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, read_only=False)
        self.blobs = Blobs(root)
        self.verified = Verified(root / "verified.json", self.blobs.incoming)
        self._lock = threading.Lock()

    def commit(self, name: ModelName, manifest: Manifest) -> None:
        """Let ``name`` be ``manifest``. The blobs that only its predecessor needed go.

        Raises INTERNAL when the disk is full or another process took one of the blobs away.
        """
        with self._changing():
            for digest in manifest.digests:
                if not self.blobs.has(digest):
                    raise ServeError(
                        Code.INTERNAL, f"the blob {digest} has gone while {name.short} was made; try again"
                    )
            before = self.find_manifest(name)
            replaced = _digests(before[1]) if before else frozenset()
            path = before[1] if before else manifest_path(self.root, name)
            try:
                write_file(path, manifest.content, self.blobs.incoming)
            except OSError as error:
                raise disk_fault(error, self.root) from error
            self._remove_unused(replaced)

    def remove(self, name: ModelName) -> bool:
        """Remove the model and the blobs that no other needs. False where there is none."""
        with self._changing():
            found = self.find_manifest(name)
            if found is None:
                return False
            path = found[1]
            digests = _digests(path)
            path.unlink(missing_ok=True)
            self._remove_empty_folders(path.parent)
            self._remove_unused(digests)
            return True

    def prune(self, older_than_s: float) -> list[str]:
        """Remove every blob that no model needs and that is so old that nothing is being made of it."""
        with self._changing():
            latest = time.time() - older_than_s
            old = [digest for digest in self.blobs.digests() if self.blobs.path(digest).stat().st_mtime < latest]
            return self._remove_unused(old)

    def drop_unused(self, digests: Iterable[str]) -> None:
        """Remove those of ``digests`` that no model needs."""
        wanted = set(digests)
        if wanted:
            with self._changing():
                self._remove_unused(wanted)

    def put_small(self, content: bytes, held: set[str]) -> tuple[str, bool]:
        """Keep ``content``; returns its digest and whether it is new."""
        digest = digest_of(content)
        self.blobs.hold(digest, held)
        if self.blobs.has(digest):
            return digest, False
        self.blobs.put([content], digest)
        return digest, True

    def adopt(self, manifest: Manifest, shelf: LibraryShelf, held: set[str]) -> None:
        """Bring the blobs of a ``shelf``'s model in: as links where that can be, otherwise as copies.

        Raises NOT_FOUND for one that is missing there, INTERNAL when the disk is full.
        """
        for digest in sorted(manifest.digests):
            self.blobs.hold(digest, held)
            source = shelf.blob_path(digest)
            if self.blobs.has(digest):
                continue
            if not source.is_file():
                raise ServeError(Code.NOT_FOUND, f"the file {source} of the model is missing; pull it again")
            self.take_in(source, digest, held)

    def take_in(self, source: Path, digest: str | None, held: set[str]) -> str:
        """Keep the file ``source`` as a blob, by a link if its ``digest`` is known; returns the digest."""
        if digest is not None:
            self.blobs.hold(digest, held)
            if self._linked(source, self.blobs.path(digest)):
                return digest
        with source.open("rb") as file, self.blobs.writer() as writer:
            while chunk := file.read(_CHUNK):
                writer.write(chunk)
            kept = writer.commit(digest)
        self.blobs.hold(kept, held)
        self.verified.remember(self.blobs.path(kept), kept)
        return kept

    def _linked(self, source: Path, target: Path) -> bool:
        """Whether ``target`` could be made another name of ``source``, which is on the disk by then."""
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with source.open("rb") as file:
                os.fsync(file.fileno())
            os.link(source, target)
            sync_folder(target.parent)
        except OSError:
            return False
        return True

    def free_bytes(self) -> int:
        """What the disk has room for."""
        place = self.root
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free

    def not_found(self, name: str) -> ServeError:
        return ServeError(Code.NOT_FOUND, f"model '{name}' not found")

    def _remove_unused(self, digests: Iterable[str]) -> list[str]:
        candidates = set(digests)
        if not candidates:
            return []
        for _, path in stored_names(self.root):
            try:
                candidates -= read_manifest(path).digests
            except FileNotFoundError:
                continue
            except (ServeError, OSError):  # what it needs cannot be known, so everything stays
                return []
        return [digest for digest in sorted(candidates) if self.blobs.remove(digest)]

    def _remove_empty_folders(self, folder: Path) -> None:
        while folder != self.root / "manifests":
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Alone, in all threads and processes. Raises UNAVAILABLE when another does not come to an end."""
        with self._lock:
            try:
                self.root.mkdir(parents=True, exist_ok=True)
                file = (self.root / ".lock").open("ab")
            except OSError as error:
                raise disk_fault(error, self.root) from error
            with file:
                deadline = time.monotonic() + _LOCK_S
                while not try_lock(file):
                    if time.monotonic() > deadline:
                        raise ServeError(Code.UNAVAILABLE, f"another process is changing {self.root}; try again later")
                    time.sleep(0.02)
                yield


def _digests(path: Path) -> frozenset[str]:
    """The blobs of a manifest; of a broken one, none: they are left to :meth:`OwnStore.prune`."""
    try:
        return read_manifest(path).digests
    except (ServeError, OSError):
        return frozenset()
