"""A process that outlives the command that started it: start it, see whether it lives, end it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def spawn(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start ``command`` detached from this terminal, its output appended to ``log``.

    Its environment is this process's with ``environment`` added.
    """
    variables = {**os.environ, **environment}
    with log.open("ab") as output:
        if sys.platform == "win32":
            flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=variables,
                creationflags=flags,
            )
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=variables,
            start_new_session=True,
        )


def born(pid: int) -> float:
    """When process ``pid`` started, in seconds since the epoch; 0 when there is none.

    Process ids are used again: a server is the one that was started only if this agrees as well.
    """
    import psutil

    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).create_time()
    return 0.0


def alive(pid: int, birth: float) -> bool:
    """Whether ``pid`` runs and is the process that was born then. A zombie has ended: only its parent lingers."""
    import psutil

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return process.create_time() == birth and process.status() != psutil.STATUS_ZOMBIE
    return False


def children(pid: int) -> list[int]:
    """The processes that ``pid`` has started and that still run."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return [child.pid for child in psutil.Process(pid).children()]
    return []


def ask_to_stop(pid: int) -> None:
    """SIGTERM. Windows cannot ask a process of another console politely: there it is ended at once."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).terminate()


def kill(pid: int) -> None:
    """End ``pid`` without asking."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).kill()
