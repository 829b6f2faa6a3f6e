"""The parent of the workers: starts them, restarts what dies, passes on what must reach all, stops them.

It serves nothing itself. It holds the ports, bound but not listening, so that no other server takes one
while a worker is started again; where the system does not spread connections over several listening
sockets, it holds the one that the workers share.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Sequence
from dataclasses import replace

from bident.settings import TensorSettings
from bident.settings.values import Named
from bident.sockets import BALANCES
from bident.supervision import Pauses, ended
from bident.workers.council import Council
from bident.workers.process import Start, WorkerProcess

logger = logging.getLogger("bident.workers")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GRACE_SECONDS = 5.0
"""How much longer than ``--exit-timeout-secs`` a worker may take to end."""


def run_workers(settings: TensorSettings, reserved: dict[str, socket.socket], command: Sequence[str]) -> int:
    """Serve with ``settings.workers`` processes until a signal comes; the process's exit code.

    ``reserved``: the ports, by service, as :func:`bident.sockets.reserve_all` has them; ``settings`` name those that
    they really are. ``command`` starts a worker, given the number of a file descriptor as its last word. Exit codes
    as those of one server.
    """
    return asyncio.run(Supervisor(settings, reserved, command).run())


class Supervisor:
    """Keeps ``settings.workers`` workers running."""

    def __init__(self, settings: TensorSettings, reserved: dict[str, socket.socket], command: Sequence[str]) -> None:
        self._settings = settings
        self._reserved = reserved
        self._command = command
        self._council = Council(settings.workers, reloads=settings.model_control_mode != "poll")
        self._workers: dict[int, WorkerProcess] = {}
        self._stopping = asyncio.Event()
        self._is_hurried = False
        self._failed = False

    async def run(self) -> int:
        """Start, watch, stop."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._signal, number)
        watching = [asyncio.ensure_future(self._keep(number)) for number in range(1, self._settings.workers + 1)]
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({stopped, *watching}, return_when=asyncio.FIRST_COMPLETED)
            self._stopping.set()
            await self._stop()
            outcomes = await asyncio.gather(*watching, return_exceptions=True)
        finally:
            stopped.cancel()
            for worker in self._workers.values():
                worker.kill()
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                logger.error("a worker could not be kept running: %r", outcome)
        return 1 if self._failed or self._is_hurried or any(outcome != 0 for outcome in outcomes) else 0

    async def _keep(self, number: int) -> int:
        """Run worker ``number``, again and again, until the server stops; the last one's exit code."""
        pauses = Pauses()
        while True:
            is_first = not self._council.has_started
            began = asyncio.get_running_loop().time()
            code = await self._run(number, is_first=is_first)
            if self._stopping.is_set():
                return 0 if code == -signal.SIGTERM else code  # told to stop before it could hear that
            if is_first and not self._council.has_started:
                logger.error("worker %d ended with %d before the server had started: stopping", number, code)
                self._failed = True
                return code
            pause = pauses.after(asyncio.get_running_loop().time() - began)
            logger.error("worker %d ended (%s); starting it again in %.1f s", number, ended(code), pause)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
                return 0

    async def _run(self, number: int, *, is_first: bool) -> int:
        start = Start(number, self._settings_of(number, is_first=is_first), is_first)
        shared = {} if BALANCES else self._reserved
        try:
            worker = await WorkerProcess.spawn(self._command, start, shared, self._council)
        except OSError as error:
            logger.error("worker %d cannot be started: %s", number, error)
            return 1
        self._workers[number] = worker
        logger.info("worker %d (pid %d) started", number, worker.pid)
        if self._stopping.is_set():
            await worker.ask_to_stop()
        return await worker.wait()

    def _settings_of(self, number: int, *, is_first: bool) -> TensorSettings:
        """What worker ``number`` is told: files of its own, no failure that ends what serves, no warning twice."""
        settings = self._settings
        return replace(
            settings,
            trace_config=tuple(_own_file(option, number) for option in settings.trace_config),
            exit_on_error=settings.exit_on_error and is_first,
            notices=(),
        )

    def _signal(self, number: int) -> None:
        if self._stopping.is_set():
            logger.warning("Signal (%d) received again: exiting at once", number)
            self._is_hurried = True
            for worker in self._workers.values():
                worker.kill()
            return
        logger.info("Signal (%d) received.", number)
        self._stopping.set()

    async def _stop(self) -> None:
        """Have all workers finish what they have accepted; whoever takes too long is killed."""
        running = [worker for worker in self._workers.values() if worker.is_running]
        for worker in running:
            await worker.ask_to_stop()
        waiting = [asyncio.ensure_future(worker.wait()) for worker in running]
        if not waiting:
            return
        _, late = await asyncio.wait(waiting, timeout=self._settings.exit_timeout_secs + _GRACE_SECONDS)
        if late:
            logger.error("exit timeout: %d workers did not end, and are killed", len(late))
            self._failed = True
            for worker in running:
                worker.kill()


def _own_file(option: Named, number: int) -> Named:
    """Trace files would be overwritten by the other workers."""
    is_file = option[:2] == ("triton", "file") and option.value
    return option._replace(value=f"{option.value}.worker{number}") if is_file else option
