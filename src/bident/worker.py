"""One worker of several: ``python -m bident.worker DESCRIPTOR``, started by the supervisor and by nobody else."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from bident.app import TensorServer, configure_log, leave, run
from bident.doors.metrics import MetricsPage
from bident.doors.opening import wanted
from bident.doors.safeguards import Safeguards
from bident.engine.engine import Engine
from bident.errors import ServeError
from bident.model.scratch import ScratchRoot
from bident.sockets import bind_all
from bident.workers.fleet import FleetEngine
from bident.workers.link import Link
from bident.workers.process import Start

logger = logging.getLogger("bident.workers")


class WorkerServer(TensorServer):
    """A tensor server that does what the supervisor says, and ends when the supervisor does."""

    engine_class = FleetEngine

    def __init__(self, start: Start, link: Link, overlays: Path, safeguards: Safeguards) -> None:
        """Raises UNAVAILABLE where a port cannot be had."""
        self._start = start
        self._link = link
        self._built: asyncio.Future[FleetEngine] = asyncio.get_running_loop().create_future()
        self._page: MetricsPage
        super().__init__(start.settings, self._listen() if start.is_first else {}, overlays, safeguards)

    async def answer(self, verb: str, arguments: tuple[Any, ...]) -> Any:
        """Answer what the supervisor asks."""
        engine = await asyncio.shield(self._built)
        return await engine.answer(verb, arguments)

    def end(self) -> None:
        """Stop as if a signal had come."""
        if not self._signalled.is_set():
            logger.error("the supervisor has gone: stopping")
            self._signalled.set()

    def _listen(self) -> dict[str, socket.socket]:
        if self._start.sockets:
            return {service: socket.socket(fileno=number) for service, number in self._start.sockets.items()}
        return bind_all([replace(door, shared=True) for door in wanted(self._start.settings)])

    def _build(self, loop: asyncio.AbstractEventLoop) -> Engine:
        engine = super()._build(loop)
        assert isinstance(engine, FleetEngine)
        self._page = self._make_page(engine, engine.summed_page)
        engine.link, engine.page = self._link, self._page.whole
        self._built.set_result(engine)
        return engine

    def _metrics_page(self, engine: Engine) -> MetricsPage:
        return self._page

    async def _load(self, engine: Engine) -> dict[str, ServeError]:
        """As at any start; a worker that comes later does again what clients have had changed, then opens its doors."""
        failures = await super()._load(engine)
        assert isinstance(engine, FleetEngine)
        for change in self._start.changes:
            try:
                await engine.make(change)
            except ServeError as error:
                logger.error("cannot do again what the other workers did: %s", error.message)
        if self._signalled.is_set() or (failures and self._settings.exit_on_error):
            return failures
        if not self._start.is_first:
            self._sockets.update(self._listen())
            await self._open_doors(engine)
        try:
            await self._link.ask("loaded", engine.wanted)
        except ConnectionError:
            self.end()
        return failures

    def _startup_names(self) -> list[str] | None:
        return super()._startup_names() if self._start.names is None else self._start.names


def main(descriptor: int) -> int:
    """Work until the supervisor has had enough; the exit code."""
    worker = _Worker()
    try:
        code = run(worker.run(socket.socket(fileno=descriptor)))
    except SystemExit:  # a second signal
        code = 1
    except (OSError, ServeError) as error:
        logger.error("%s", error)
        return 1
    finally:
        if worker.overlays is not None:
            worker.overlays.remove()
    if worker.server is not None and worker.server.has_abandoned_work:
        leave(code)
    return code


class _Worker:
    """What there is of a worker while it comes to be."""

    def __init__(self) -> None:
        self.server: WorkerServer | None = None
        self.overlays: ScratchRoot | None = None
        self._is_made = asyncio.Event()

    async def run(self, sock: socket.socket) -> int:
        """Say hello, become what the supervisor says, and serve. Raises OSError and ServeError."""
        link = Link(self._serve, self._lost)
        sock.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=sock)
        start: Start = await link.ask("hello")
        configure_log(start.settings, f"{os.getppid()}.{start.number}")
        safeguards = Safeguards(start.settings)
        self.overlays = ScratchRoot.make()
        self.server = WorkerServer(start, link, self.overlays.path, safeguards)
        self._is_made.set()
        return await self.server.run()

    async def _serve(self, verb: str, arguments: tuple[Any, ...]) -> Any:
        await self._is_made.wait()
        assert self.server is not None
        return await self.server.answer(verb, arguments)

    def _lost(self) -> None:
        if self.server is not None:
            self.server.end()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
