"""Locks that go with an open file, and with the process that holds them: a killed one leaves none behind."""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 40  # a locked byte cannot be read by others: one that no file has

    def try_lock(file: BinaryIO) -> bool:
        """Lock ``file`` until it is closed. False where another holds it."""
        before = file.tell()
        os.lseek(file.fileno(), _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(file.fileno(), before, os.SEEK_SET)
        return True

else:
    import fcntl

    def try_lock(file: BinaryIO) -> bool:
        """Lock ``file`` until it is closed. False where another holds it."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
