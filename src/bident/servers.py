"""Both servers beside each other: each its own process, kept running, and neither can take the other down.

What they print goes to standard error, each line with its server's name in front. A server is told to
stop by the end of its standard input, which also comes when this process dies: none is ever left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bident.supervision import STABLE_SECONDS, Pauses, ended, labels

logger = logging.getLogger("bident.server")

SUPERVISED = "BIDENT_SUPERVISED"
"""Set in the environment of a server that has to watch its standard input."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GRACE_SECONDS = 5.0
"""How much longer than it promised a server may take to end."""
_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 20
"""Bytes without a line's end after which what a server prints is shown as a line all the same."""


@dataclass(frozen=True)
class ServerStart:
    """A server to run: what to call it, its command line, and how long it may take to stop."""

    name: str
    command: Sequence[str]
    exit_timeout_secs: float


def run_servers(starts: Sequence[ServerStart]) -> int:
    """Keep all servers running until a signal comes; the process's exit code.

    0 when all stopped as asked; 1 when one of them cannot start at all, takes too long to stop, or a
    second signal came.
    """
    return asyncio.run(_Supervisor(starts).run())


class _Supervisor:
    def __init__(self, starts: Sequence[ServerStart]) -> None:
        self._stopping = asyncio.Event()
        prefixes = labels([start.name for start in starts])
        pairs = zip(starts, prefixes, strict=True)
        self._keepers = [_Keeper(start, prefix.encode(), self._stopping) for start, prefix in pairs]
        self._is_hurried = False

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            try:
                loop.add_signal_handler(number, self._signal, number)
            except NotImplementedError:  # Windows
                signal.signal(number, lambda number, _: loop.call_soon_threadsafe(self._signal, number))
        keeping = [asyncio.ensure_future(keeper.run()) for keeper in self._keepers]
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            # One that ends here is one that cannot start.
            await asyncio.wait({stopped, *keeping}, return_when=asyncio.FIRST_COMPLETED)
            self._stopping.set()
            await asyncio.gather(*(keeper.stop() for keeper in self._keepers))
            outcomes = await asyncio.gather(*keeping)
        finally:
            stopped.cancel()
            for keeper in self._keepers:
                keeper.kill()
        return 1 if self._is_hurried or any(outcomes) else 0

    def _signal(self, number: int) -> None:
        if not self._stopping.is_set():
            logger.info("Signal (%d) received.", number)
            self._stopping.set()
            return
        logger.warning("Signal (%d) received again: exiting at once", number)
        self._is_hurried = True
        for keeper in self._keepers:
            keeper.kill()


class _Keeper:
    """Runs one server, again and again."""

    def __init__(self, start: ServerStart, prefix: bytes, stopping: asyncio.Event) -> None:
        self._start = start
        self._prefix = prefix
        self._stopping = stopping
        self._process: asyncio.subprocess.Process | None = None
        self._is_late = False

    async def run(self) -> int:
        """Until the servers stop, or this one cannot start; 0 where the last one ended as asked."""
        name, pauses, is_first = self._start.name, Pauses(), True
        clock = asyncio.get_running_loop().time
        while not self._stopping.is_set():
            began = clock()
            code = await self._run_once()
            if self._stopping.is_set():
                # A process that is told to stop before it can listen to that ends by the signal itself.
                return 0 if code in (0, -signal.SIGTERM) and not self._is_late else 1
            lived = clock() - began
            if is_first and code > 0 and lived < STABLE_SECONDS:
                logger.error("the %s server cannot start (%s), for the reason above: stopping", name, ended(code))
                return code
            is_first, pause = False, pauses.after(lived)
            logger.error("the %s server ended (%s); starting it again in %.1f s", name, ended(code), pause)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
        return 0

    async def _run_once(self) -> int:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._start.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, SUPERVISED: "1"},
                start_new_session=True,  # Ctrl-C is for this process, which then tells the servers
            )
        except OSError as error:
            logger.error("the %s server cannot be run: %s", self._start.name, error)
            return 1
        self._process = process
        logger.info("the %s server (pid %d) is started", self._start.name, process.pid)
        if self._stopping.is_set():
            self._ask_to_stop()
        printing = asyncio.ensure_future(self._print_all(process))
        code = await process.wait()
        # What it started may hold its output open; all that it printed itself is there already.
        await asyncio.wait({printing}, timeout=1.0)
        printing.cancel()
        return code

    async def _print_all(self, process: asyncio.subprocess.Process) -> None:
        """Show what the server prints, by whole lines."""
        assert process.stdout is not None
        rest = b""
        while chunk := await process.stdout.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            self._print(lines)
        if rest:
            self._print([rest])

    def _print(self, lines: list[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):  # whoever read it has gone; the servers go on
            sys.stderr.buffer.write(b"".join(self._prefix + line + b"\n" for line in lines))
            sys.stderr.buffer.flush()

    async def stop(self) -> None:
        """Have it finish what it has accepted; kill it if that takes too long."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._ask_to_stop()
        try:
            await asyncio.wait_for(process.wait(), self._start.exit_timeout_secs + _GRACE_SECONDS)
        except asyncio.TimeoutError:
            logger.error("exit timeout: the %s server did not end, and is killed", self._start.name)
            self._is_late = True
            self.kill()

    def _ask_to_stop(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        """End it at once, with whatever it has started."""
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)


def end_with_supervisor() -> None:
    """In a server that :func:`run_servers` has started: stop, as by a signal, when that says so or is gone."""
    if not os.environ.pop(SUPERVISED, ""):
        return
    import threading

    threading.Thread(target=_wait_for_the_end, name="supervisor", daemon=True).start()


def _wait_for_the_end() -> None:
    # Not sys.stdin: a thread inside it would hold a lock that the interpreter wants when it ends.
    with contextlib.suppress(OSError):
        os.read(0, 1)
    signal.raise_signal(signal.SIGINT if sys.platform == "win32" else signal.SIGTERM)
