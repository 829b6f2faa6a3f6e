"""Start a worker: ``python <this folder> <instance's name> <channel> <lifeline> <the server's process id>``.

``channel`` and ``lifeline`` are descriptors: a socket, and the reading end of a pipe that nobody writes to.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import select
import signal
import socket
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1
_EXIT_UNFIT = 71
_OLDEST = (3, 9)


def _end_with(server: int, lifeline: int) -> None:
    """Have the kernel end this process and its group when the server ends, however it ends and whatever runs here.

    The server holds the only writing end of ``lifeline``. Where the kernel cannot tell the group that it is
    closed, it ends this process alone.
    """
    if sys.platform != "linux":
        return
    import fcntl

    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    except OSError:
        _die_with(server)
    poll = select.poll()
    poll.register(lifeline, 0)
    if poll.poll(0):
        os._exit(0)


def _die_with(server: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(0)


def _end_as_unfit(lacking: str) -> None:
    """End the process because this Python cannot run a worker, with what it is ``lacking`` for its last word."""
    sys.stdout.write(f"{lacking}\n")
    sys.stdout.flush()
    os._exit(_EXIT_UNFIT)


def main() -> None:
    """Serve the model that the server names."""
    descriptor, lifeline, server = (int(number) for number in sys.argv[2:5])
    _end_with(server, lifeline)
    stdout: Any = sys.stdout
    stdout.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    faulthandler.enable()
    if sys.version_info[:2] < _OLDEST:
        _end_as_unfit(f"the environment's Python is {sys.version.split()[0]}; a worker needs 3.9 or later")
    try:
        from bident_worker.link import Link  # type: ignore[import-not-found]
        from bident_worker.serve import Worker  # type: ignore[import-not-found]
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        _end_as_unfit(f"the environment needs numpy: {sys.executable} -m pip install numpy")

    sys.argv = [""]
    os.set_inheritable(descriptor, False)
    os.set_inheritable(lifeline, False)
    link = Link(socket.socket(fileno=descriptor))
    link.watch_for_end()
    Worker(link).serve()


if __name__ == "__main__":
    main()
