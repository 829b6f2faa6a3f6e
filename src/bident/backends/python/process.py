"""A worker's operating system process: start it, hear what it prints, learn how it ended."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

WORKER = Path(__file__).parent / "worker"
_LINE_LIMIT = 8192
_READ_SIZE = 65536
_LABEL_LIMIT = 200
_LAST_LINES = 20
_LAST_CHARACTERS = 4000
_OUTPUT_GRACE_SECONDS = 0.5

# Where the lifeline cannot be had, the kernel ends a worker with the *thread* that started it (``worker/__main__``):
# one thread starts all, and lives as long as the server.
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
        # Nothing is ever written: it is closed when this process ends or the other has ended, which both sides notice.
        self._lifeline_read, self._lifeline = os.pipe()
        self.channel, self._theirs = socket.socketpair()
        self.channel.setblocking(False)
        try:
            self._process = _starter.submit(self._start, interpreter, environment, directory).result()
        except BaseException:
            self.channel.close()
            self._theirs.close()
            os.close(self._lifeline)
            os.close(self._lifeline_read)
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
        theirs, lifeline = self._theirs.fileno(), self._lifeline_read
        numbers = [str(number) for number in (theirs, lifeline, os.getpid())]
        return subprocess.Popen(
            # Its label is for who looks at the list of processes.
            [interpreter, "-X", "utf8", WORKER, self.label[:_LABEL_LIMIT], *numbers],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs, lifeline),
            env=environment,
            cwd=directory,
            start_new_session=True,  # Ctrl-C at the terminal is the server's to handle; and it leads a group
        )

    def _listen(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        rest = b""
        for data in self._printed(stream.fileno()):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._hear(line)
            whole = len(rest) - len(rest) % _LINE_LIMIT
            if whole:
                self._hear(rest[:whole])
                rest = rest[whole:]
        if rest:
            self._hear(rest)
        stream.close()
        os.close(self._lifeline_read)

    def _hear(self, raw: bytes) -> None:
        for start in range(0, len(raw) or 1, _LINE_LIMIT):
            line = raw[start : start + _LINE_LIMIT].decode("utf-8", "backslashreplace").rstrip("\r")
            self.last_lines.append(line)
            logger.info("%s: %s", self.label, line)

    def _printed(self, output: int) -> Iterator[bytes]:
        """What the process prints; what it leaves behind in sessions of their own is heard a moment longer only."""
        poll = select.poll()
        poll.register(output, select.POLLIN)
        poll.register(self._lifeline_read, 0)
        until: float | None = None
        while until is None or time.monotonic() < until:
            ready = [descriptor for descriptor, _ in poll.poll(None if until is None else _OUTPUT_GRACE_SECONDS * 1000)]
            if self._lifeline_read in ready:
                poll.unregister(self._lifeline_read)
                until = time.monotonic() + _OUTPUT_GRACE_SECONDS
            if output in ready:
                data = os.read(output, _READ_SIZE)
                if not data:
                    return
                yield data

    def _await_end(self) -> None:
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        # Before it is reaped, while its group is surely its: what it has started ends with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._lifeline)
        self._listener.join(2 * _OUTPUT_GRACE_SECONDS)
        self.ended.set()
        # Held until now, so that the channel's end is seen only when it is known why.
        with contextlib.suppress(OSError):
            self._theirs.shutdown(socket.SHUT_RDWR)
        self._theirs.close()
