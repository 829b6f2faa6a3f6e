"""Where the workers wait for each other before a model they have loaded goes into service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from bident.errors import Code, ServeError


class Gate:
    """Opens when each worker has either arrived or no need to; shuts for good when one of them has failed."""

    def __init__(self, workers: Iterable[int]) -> None:
        self._awaited = set(workers)
        self._settled = asyncio.Event()
        self._failure: tuple[int, ServeError] | None = None
        self._look()

    async def wait(self, worker: int) -> None:
        """Arrive, and return when ``worker`` may go on. Raises what the first that failed said."""
        self.leave(worker)
        await self._settled.wait()
        if self._failure is not None:
            number, error = self._failure
            raise ServeError(error.code, f"not put into service, since worker {number} failed: {error.message}")

    def leave(self, worker: int) -> None:
        """Wait for ``worker`` no more: it has arrived, has ended, or had nothing to do."""
        self._awaited.discard(worker)
        self._look()

    def fail(self, worker: int, error: ServeError) -> None:
        """``worker`` could not do it, so nobody does. Only the first failure counts."""
        if self._failure is None and not self._settled.is_set():
            self._failure = (worker, error)
        self.leave(worker)

    @property
    def failure(self) -> ServeError | None:
        """The first failure, as it was."""
        return self._failure[1] if self._failure else None

    def _look(self) -> None:
        if not self._awaited or self._failure is not None:
            self._settled.set()


def gone(worker: int) -> ServeError:
    """The answer where ``worker`` has ended before it could give one."""
    return ServeError(Code.UNAVAILABLE, f"worker {worker} ended before it was done; it is started again: ask again")
