"""Anonymous shared memory, made by the server. The kernel takes it back when nobody has it open."""

from __future__ import annotations

import os
import secrets
import sys

from bident.backends.python.worker.bident_worker.memory import segment_size


def make(size: int) -> tuple[int, int]:
    """Shared memory of at least ``size`` bytes: its descriptor, which the caller closes, and its size.

    Raises OSError when there is none to be had.
    """
    size = segment_size(size)
    descriptor = _memfd(size) if sys.platform == "linux" and hasattr(os, "memfd_create") else _unlinked(size)
    return descriptor, size


def _memfd(size: int) -> int:
    import fcntl

    descriptor = os.memfd_create("bident", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        # Nobody can take the memory away under the other's feet.
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _unlinked(size: int) -> int:
    import _posixshmem  # type: ignore[import-not-found]

    name = f"/bident-{secrets.token_hex(6)}"
    descriptor: int = _posixshmem.shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
    try:
        # Without its name it goes with its last descriptor, like a memfd.
        _posixshmem.shm_unlink(name)
        os.ftruncate(descriptor, size)
        if hasattr(os, "posix_fallocate"):
            # A full /dev/shm is an error here, not a bus error later.
            os.posix_fallocate(descriptor, 0, size)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
