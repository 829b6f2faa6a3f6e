"""A worker's operating system process: start it, hear what it prints, learn how it ended."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

WORKER = Path(__file__).parent / "worker"
_LINE_LIMIT = 8192
_LABEL_LIMIT = 200
_LAST_LINES = 20
_LAST_CHARACTERS = 4000
_OUTPUT_GRACE_SECONDS = 0.5

# The kernel ends a worker with the *thread* that started it: one thread starts all, and lives as long as the server.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bident starter")

EXIT_UNFIT = 71
"""A worker ends so when its environment cannot run it; what it prints says why (``worker/__main__``)."""

logger = logging.getLogger("bident.python")


class Process:
    """One worker process and the server's end of its channel."""

    def __init__(self, label: str, interpreter: Path, environment: Mapping[str, str], directory: Path) -> None:
        """Starts ``interpreter`` on the worker; blocks until it runs. Raises OSError when it cannot."""
        self.label = label
        self.ended = threading.Event()
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self.channel, self._theirs = socket.socketpair()
        self.channel.setblocking(False)
        try:
            self._process = _starter.submit(self._start, interpreter, environment, directory).result()
        except BaseException:
            self.channel.close()
            self._theirs.close()
            raise
        self.pid = self._process.pid
        self._listener = threading.Thread(target=self._listen, name=f"bident output {label}", daemon=True)
        self._listener.start()
        threading.Thread(target=self._await_end, name=f"bident end {label}", daemon=True).start()

    def kill(self) -> None:
        """End the process, and what it has started in its process group, at once."""
        if self.ended.is_set():
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self._process.kill()

    @property
    def unfit(self) -> str:
        """What its environment lacks, if it could not even begin for want of that; else empty."""
        return self.last_lines[-1] if self._process.returncode == EXIT_UNFIT and self.last_lines else ""

    def how_it_ended(self) -> str:
        """How the process ended, and its last words."""
        code = self._process.returncode
        if code is None:
            how = "its process was given up"
        elif code < 0:
            name = signal.Signals(-code).name if -code in signal.valid_signals() else "?"
            how = f"its process was killed by signal {-code} ({name})"
        else:
            how = f"its process exited with code {code}"
        words = "\n".join(self.last_lines)[-_LAST_CHARACTERS:]
        return f"{how}; the last lines it printed:\n{words}" if words else how

    def close(self) -> None:
        """Give up the channel. The process has ended, or is about to."""
        self.channel.close()

    def _start(self, interpreter: Path, environment: Mapping[str, str], directory: Path) -> subprocess.Popen[bytes]:
        theirs = self._theirs.fileno()
        return subprocess.Popen(
            # Its label is for who looks at the list of processes.
            [interpreter, "-X", "utf8", WORKER, self.label[:_LABEL_LIMIT], str(theirs), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs,),
            env=environment,
            cwd=directory,
            start_new_session=True,  # Ctrl-C at the terminal is the server's to handle
        )

    def _listen(self) -> None:
        stream: IO[bytes] | None = self._process.stdout
        assert stream is not None
        reader: Callable[[], bytes] = lambda: stream.readline(_LINE_LIMIT)  # noqa: E731
        for raw in iter(reader, b""):
            line = raw.decode("utf-8", "backslashreplace").rstrip("\r\n")
            self.last_lines.append(line)
            logger.info("%s: %s", self.label, line)
        stream.close()

    def _await_end(self) -> None:
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        # Before it is reaped, while its group is surely its: what it has started ends with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join(_OUTPUT_GRACE_SECONDS)
        self.ended.set()
        # Held until now, so that the channel's end is seen only when it is known why.
        with contextlib.suppress(OSError):
            self._theirs.shutdown(socket.SHUT_RDWR)
        self._theirs.close()
