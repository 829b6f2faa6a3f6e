"""One worker as its supervisor sees it: a process and the link to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bident.settings import TensorSettings
from bident.workers.journal import Change
from bident.workers.link import Link

if TYPE_CHECKING:
    from bident.workers.council import Council


@dataclass(frozen=True)
class Start:
    """What a worker is told when it says hello.

    ``is_first``: it belongs to the server's start, so its doors are open while it loads; one that comes
    later opens them when it can answer. ``names``: models to load, None for what the settings say;
    ``changes``: what to do after that. ``sockets``: file descriptors to listen on by service, where the
    workers share them.
    """

    number: int
    settings: TensorSettings
    is_first: bool
    names: list[str] | None = None
    changes: list[Change] = field(default_factory=list)
    sockets: dict[str, int] = field(default_factory=dict)


class WorkerProcess:
    """A worker that has been started."""

    def __init__(self, start: Start, council: Council) -> None:
        self.start = start
        self.number = start.number
        self.link = Link(self._serve, self._lost)
        self._council = council
        self._process: asyncio.subprocess.Process
        self.is_running = False

    @classmethod
    async def spawn(
        cls, command: Sequence[str], start: Start, shared: dict[str, socket.socket], council: Council
    ) -> WorkerProcess:
        """Start ``command``, given the file descriptor of its end of the link; ``shared`` sockets are passed on."""
        ours, theirs = socket.socketpair()
        descriptors = {service: sock.fileno() for service, sock in shared.items()}
        worker = cls(replace(start, sockets=descriptors), council)
        try:
            worker._process = await asyncio.create_subprocess_exec(
                *command,
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *descriptors.values()),
                start_new_session=True,  # Ctrl-C is for the supervisor, which then tells the workers
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        worker.is_running = True
        ours.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: worker.link, sock=ours)
        return worker

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def wait(self) -> int:
        """The exit code, once it has ended; negative for a signal."""
        code = await self._process.wait()
        self.is_running = False
        self.link.close()
        return code

    async def ask_to_stop(self) -> None:
        """Have it finish what it has accepted and end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """End it at once, with whatever it has started."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, 9)

    async def _serve(self, verb: str, arguments: tuple[Any, ...]) -> Any:
        return await self._council.serve(self, verb, arguments)

    def _lost(self) -> None:
        self._council.leave(self)
