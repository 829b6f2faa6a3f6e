"""Remembers which files have been read whole and found to be what they should, so that it happens once."""

from __future__ import annotations

import threading
from pathlib import Path

import orjson

from bident.errors import Code, ServeError
from bident.text.store.blobs import file_digest, write_file


class Verified:
    """Files whose sha256 is known, as long as their size and time of change stay. Kept in ``path``."""

    def __init__(self, path: Path, staging: Path) -> None:
        self._path = path
        self._staging = staging
        self._lock = threading.Lock()
        self._known: dict[str, list[object]] | None = None

    def check(self, path: Path, digest: str) -> None:
        """Make sure that ``path`` holds what ``digest`` says. Blocks; the first time as long as reading it takes.

        Raises INTERNAL when it does not: bytes have changed on the disk. Raises OSError.
        """
        if self._knows(path, digest):
            return
        found = file_digest(path)
        if found != digest:
            raise ServeError(
                Code.INTERNAL, f"{path} is damaged: its sha256 is {found}, it should be {digest}; pull the model again"
            )
        self.remember(path, digest)

    def remember(self, path: Path, digest: str) -> None:
        """Keep in mind that ``path``, as it is now, has been checked; never an error, at worst it is checked again."""
        with self._lock:
            known = self._load()
            try:
                known[str(path)] = _entry(path, digest)
                for gone in [each for each in known if not Path(each).exists()]:
                    del known[gone]
                write_file(self._path, orjson.dumps(known), self._staging)
            except OSError:
                pass  # a store that cannot be written to

    def _knows(self, path: Path, digest: str) -> bool:
        with self._lock:
            return self._load().get(str(path)) == _entry(path, digest)

    def _load(self) -> dict[str, list[object]]:
        if self._known is None:
            try:
                loaded = orjson.loads(self._path.read_bytes())
            except (OSError, ValueError):
                loaded = {}
            self._known = loaded if isinstance(loaded, dict) else {}
        return self._known


def _entry(path: Path, digest: str) -> list[object]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, digest]
