"""What the workers do together: changes that reach all of them, and figures that come from all of them."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bident.errors import ServeError
from bident.workers import sums
from bident.workers.gate import Gate, gone
from bident.workers.journal import Change, Journal

if TYPE_CHECKING:
    from bident.workers.process import Start, WorkerProcess

logger = logging.getLogger("bident.workers")

_GATHER_SECONDS = 2.0
"""How long a worker may take to say how it is doing; one whose loop stands still must not hold up the others."""


class _Figures:
    """What workers have said that goes on counting when they have ended: sums never fall."""

    def __init__(self, kept: Callable[[Any], Any], add: Callable[[Any, Any], Any]) -> None:
        self.last: dict[int, Any] = {}
        self.ended: Any = None
        self._kept = kept
        self._add = add

    def end(self, number: int) -> None:
        """Worker ``number`` has ended: keep what it said last."""
        if number in self.last:
            kept = self._kept(self.last.pop(number))
            self.ended = kept if self.ended is None else self._add(self.ended, kept)


@dataclass
class _Turn:
    """Changes of one name, one after the other."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Council:
    """Who takes part, what they have agreed on, and how the next agreement comes about.

    A worker takes part from when it says hello. All of it runs on the supervisor's event loop.
    """

    def __init__(self, expected: int, *, reloads: bool) -> None:
        """``reloads``: a worker that comes later loads what the first ones did, whatever is on disk by then."""
        self._expected = expected
        self._reloads = reloads
        self._members: dict[int, WorkerProcess] = {}
        self._loaded: set[int] = set()
        self._journal = Journal()
        self._turns: dict[str, _Turn] = {}
        self._gates: dict[int, Gate] = {}
        self._making: set[asyncio.Future[Any]] = set()
        self._numbers = itertools.count(1)
        self._figures = {
            "metrics": _Figures(sums.cumulative, lambda one, other: sums.add_pages([one, other])),
            "figures": _Figures(lambda figures: figures, sums.added),
        }
        self.has_started = False
        """Whether all workers of the start have loaded their models."""

    async def serve(self, worker: WorkerProcess, verb: str, arguments: tuple[Any, ...]) -> Any:
        """Answer what ``worker`` asks."""
        match verb:
            case "hello":
                return self._welcome(worker)
            case "loaded":
                return self._note_loaded(worker.number, *arguments)
            case "change":
                return await self._to_the_end(self._change(worker, *arguments))
            case "at_gate":
                return await self._gates[arguments[0]].wait(worker.number)
            case "gather":
                return await self._gather(worker, *arguments)
            case _:
                raise ValueError(f"no worker may ask for '{verb}'")

    def leave(self, worker: WorkerProcess) -> None:
        """``worker`` has gone; nobody waits for it any more."""
        if self._members.get(worker.number) is worker:
            del self._members[worker.number]
            self._loaded.discard(worker.number)
        for gate in self._gates.values():
            gate.leave(worker.number)
        for figures in self._figures.values():
            figures.end(worker.number)

    def _welcome(self, worker: WorkerProcess) -> Start:
        self._members[worker.number] = worker
        if worker.start.is_first or self._journal.names is None:
            return worker.start
        changes = self._journal.changes()
        touched = self._journal.touched()
        names = [name for name in self._journal.names if name not in touched] if self._reloads else None
        return replace(worker.start, names=names, changes=changes)

    def _note_loaded(self, number: int, names: list[str]) -> None:
        """Worker ``number`` serves; ``names`` are the models it was asked to load."""
        self._loaded.add(number)
        if self._journal.names is None:
            self._journal.names = names
        if not self.has_started and len(self._loaded) == self._expected:
            self.has_started = True
            logger.info("all %d workers are ready for requests", self._expected)

    # Changes

    async def _to_the_end(self, change: Coroutine[Any, Any, Any]) -> Any:
        """Have ``change`` made even if the worker that asked for it dies: the others are in the middle of it."""
        making = asyncio.ensure_future(change)
        self._making.add(making)
        making.add_done_callback(self._made)
        return await asyncio.shield(making)

    def _made(self, making: asyncio.Future[Any]) -> None:
        self._making.discard(making)
        if not making.cancelled():
            making.exception()  # perhaps nobody else has asked

    @asynccontextmanager
    async def _turn(self, subject: str) -> AsyncIterator[None]:
        turn = self._turns.setdefault(subject, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:  # names are the clients' choice: none is kept
                del self._turns[subject]

    async def _change(self, origin: WorkerProcess, change: Change) -> Any:
        """Make ``change`` in all workers; what it gives in ``origin``. Raises the first failure."""
        async with self._turn(change.subject):
            done = set(self._members.values())
            try:
                result = await (self._load if change.is_load else self._one_then_all)(origin, change)
            except ConnectionError:
                raise gone(origin.number) from None
            self._journal.note(change)
            # Those that came meanwhile were told what had been agreed on before.
            while late := [worker for worker in self._members.values() if worker not in done]:
                done.update(late)
                await self._tell(late, change)
            return result

    async def _load(self, origin: WorkerProcess, change: Change) -> Any:
        """Side by side, each waiting for the others before it switches: all of them serve the new model, or none."""
        number = next(self._numbers)
        gate = self._gates[number] = Gate(self._members)
        try:
            members = list(self._members.values())
            await asyncio.gather(*(self._pass(worker, gate, number, change) for worker in members))
            if gate.failure is not None:
                raise gate.failure
        finally:
            del self._gates[number]

    async def _pass(self, worker: WorkerProcess, gate: Gate, number: int, change: Change) -> None:
        try:
            await worker.link.ask("change", number, change)
        except ServeError as error:
            gate.fail(worker.number, error)
        except ConnectionError:
            logger.warning("worker %d ended during a load of '%s'", worker.number, change.subject)
        finally:
            gate.leave(worker.number)

    async def _one_then_all(self, origin: WorkerProcess, change: Change) -> Any:
        """First where it was asked for: what is wrong with it shows there, before anybody else has changed."""
        result = await origin.link.ask("change", 0, change)
        await self._tell([worker for worker in self._members.values() if worker is not origin], change)
        return result

    async def _tell(self, workers: Iterable[WorkerProcess], change: Change) -> None:
        """Have ``workers`` make ``change``. Raises the first failure once all have tried."""
        asked = list(workers)
        outcomes = await asyncio.gather(
            *(worker.link.ask("change", 0, change) for worker in asked), return_exceptions=True
        )
        for worker, outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, ServeError):
                raise ServeError(outcome.code, f"{outcome.message} (in worker {worker.number}; others have changed)")
            if isinstance(outcome, BaseException) and not isinstance(outcome, ConnectionError):
                raise outcome

    # Figures

    async def _gather(self, origin: WorkerProcess, kind: str, own: Any, *arguments: Any) -> list[tuple[int, Any]]:
        """What the other workers say to ``kind``, by their numbers; None for one that does not answer in time.

        ``own`` is what ``origin`` says itself. What ended workers have counted comes under number 0.
        """
        others = [worker for worker in self._members.values() if worker is not origin and self._counts(worker)]
        said = await asyncio.gather(*(self._ask(worker, kind, arguments) for worker in others))
        answers = list(zip((worker.number for worker in others), said, strict=True))
        figures = self._figures.get(kind)
        if figures is None:
            missing = () if self.has_started else range(1, self._expected + 1)
            present = {origin.number, *(number for number, _ in answers)}
            return answers + [(number, None) for number in missing if number not in present]
        figures.last[origin.number] = own
        figures.last.update({number: answer for number, answer in answers if answer is not None})
        known = [(number, figures.last.get(number)) for number, _ in answers]
        return known if figures.ended is None else [*known, (0, figures.ended)]

    def _counts(self, worker: WorkerProcess) -> bool:
        """Whether ``worker`` serves, or should by now: not one that is being started again."""
        return worker.start.is_first or worker.number in self._loaded

    async def _ask(self, worker: WorkerProcess, kind: str, arguments: tuple[Any, ...]) -> Any:
        try:
            return await asyncio.wait_for(worker.link.ask(kind, *arguments), _GATHER_SECONDS)
        except (ServeError, ConnectionError, asyncio.TimeoutError):
            return None
