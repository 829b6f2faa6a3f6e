"""POSIX shared memory as a client makes it."""

from __future__ import annotations

import _posixshmem
import mmap
import os
import secrets
from types import TracebackType


class SharedObject:
    """A shared memory object with a name of its own, which is gone afterwards."""

    def __init__(self, size: int) -> None:
        self.key = f"/bident-test-{secrets.token_hex(8)}"
        self.size = size
        self._descriptor: int = _posixshmem.shm_open(self.key, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
        os.ftruncate(self._descriptor, size)
        self._memory = mmap.mmap(self._descriptor, size)

    def __enter__(self) -> SharedObject:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._memory.close()
        os.close(self._descriptor)
        _posixshmem.shm_unlink(self.key)

    def put(self, data: bytes, offset: int = 0) -> None:
        """Write ``data`` at byte ``offset``."""
        self._memory[offset : offset + len(data)] = data

    def get(self, size: int, offset: int = 0) -> bytes:
        """``size`` bytes from byte ``offset``."""
        return self._memory[offset : offset + size]

    def shrink(self, size: int) -> None:
        """Take memory away from whoever has it open. Nothing of it may be looked at here afterwards."""
        os.ftruncate(self._descriptor, size)
