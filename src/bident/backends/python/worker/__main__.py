"""Start a worker: ``python <this folder> <channel's descriptor> <the server's process id>``."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import socket
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1


def _die_with(server: int) -> None:
    """Have the kernel end this process when the server ends, however it ends."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(0)


def main() -> None:
    """Serve the model that the server names."""
    descriptor, server = int(sys.argv[1]), int(sys.argv[2])
    _die_with(server)
    stdout: Any = sys.stdout
    stdout.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    faulthandler.enable()
    from bident_worker.link import Link  # type: ignore[import-not-found]
    from bident_worker.serve import Worker  # type: ignore[import-not-found]

    sys.argv = [""]
    os.set_inheritable(descriptor, False)
    link = Link(socket.socket(fileno=descriptor))
    link.watch_for_end()
    Worker(link).serve()


if __name__ == "__main__":
    main()
