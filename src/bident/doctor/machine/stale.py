"""What dead servers leave behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from bident.doctor.check import Finding, Fix, Patient
from bident.doctor.machine.surroundings import MachineCheck, Surroundings
from bident.errors import Code, ServeError
from bident.local.record import STATE_DIR, Record, forget, pid_file

_LEFT_BY_TRITON = "triton_python_backend_shm_region_*"
"""What a real Triton calls the shared memory of its Python backend; it removes it when it ends in good order."""
_YOUNG_SECONDS = 60.0
"""A region that was made just now may be about to be opened."""


class StaleRecord(MachineCheck):
    """Commands take such a server for one that ended unexpectedly, and refuse to ask another."""

    name = "stale-record"
    title = "The record of a server that no longer runs"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        folder = self._here.directory / STATE_DIR
        record = Record.read(folder)
        path = pid_file(folder)
        if (record is None and not path.exists()) or (record is not None and record.running()):
            return
        yield self._risk(
            folder,
            f"it tells of a server (pid {record.pid}) that does not run" if record else f"{path} belongs to no server",
            "the server was killed, or the machine was restarted, before 'bident down'",
            "'bident logs' shows how it ended; 'bident up' starts one; 'bident down' puts the record away",
            Fix(f"put the record away (kept as {folder / 'serve.json.1'})", lambda: _put_away(folder)),
        )


def _put_away(folder: Path) -> None:
    record = Record.read(folder)
    if record is not None and record.running():
        raise ServeError(
            Code.UNAVAILABLE, f"the server of {folder} (pid {record.pid}) runs by now: nothing was changed"
        )
    forget(folder)


def mapped_files() -> set[str]:
    """Names of the shared memory that this user's processes have; root sees everybody's."""
    found: set[str] = set()
    for process in psutil.process_iter():
        try:
            maps = Path(f"/proc/{process.pid}/maps").read_text(errors="replace")
        except OSError:
            continue  # it has ended, or is another user's
        found |= {Path(line.split(maxsplit=5)[-1]).name for line in maps.splitlines() if "/dev/shm/" in line}
    return found


class LeftoverSharedMemory(MachineCheck):
    """It stays in memory until it is removed, or the machine is restarted."""

    name = "leftover-shared-memory"
    title = "A killed Triton left shared memory behind"

    def __init__(
        self,
        surroundings: Surroundings | None = None,
        folder: Path = Path("/dev/shm"),
        in_use: Callable[[], set[str]] = mapped_files,
    ) -> None:
        super().__init__(surroundings)
        self._folder = folder
        self._in_use = in_use

    def examine(self, patient: Patient) -> Iterator[Finding]:
        left = {path: stat for path in sorted(self._folder.glob(_LEFT_BY_TRITON)) if (stat := _own(path))}
        used = self._in_use() if left else set()
        sizes = {path: stat.st_size for path, stat in left.items() if path.name not in used}
        if not sizes:
            return
        count, size = len(sizes), sum(sizes.values())
        yield self._risk(
            self._folder,
            f"{count} {'region' if count == 1 else 'regions'} ({size >> 20} MiB) that no process has open",
            "a real Triton, or one of its Python models, was killed before it could remove them",
            f"rm {' '.join(map(str, sizes))}",
            Fix("remove them", lambda: self._remove(list(sizes))),
        )

    def _remove(self, left: list[Path]) -> None:
        """Shared memory that nobody has open holds nothing to keep: there is no ``.bak`` of it."""
        used = self._in_use()
        if any(path.name in used for path in left):
            raise ServeError(Code.UNAVAILABLE, f"a process has opened what is left in {self._folder}: nothing removed")
        for path in left:
            path.unlink(missing_ok=True)


def _own(path: Path) -> os.stat_result | None:
    """What the system says of a file that is this user's, or anybody's for root: the others' processes are not seen.

    None for other files, and for one that is young.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    is_ours = os.geteuid() in (0, found.st_uid)
    return found if is_ours and time.time() - found.st_mtime > _YOUNG_SECONDS else None
