"""What is loaded: load, swap, drain, unload.

A load happens beside what is in service: only when every version of it is ready are the routes
switched, all at once, on the event loop; the versions it replaces answer what they have accepted
and are then closed. A load that fails changes nothing. Operations on one model run one after the
other, operations on different models side by side.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from bident.engine import ensemble_members
from bident.engine.cache import ResponseCache
from bident.engine.calls import Models
from bident.engine.clients import Clients
from bident.engine.ensemble import EnsembleServable
from bident.engine.loader import Loader, readable
from bident.engine.loading_threads import LoadingThreads
from bident.engine.measures import Measures
from bident.engine.rate import RateLimiter
from bident.engine.readying import Gate, make_ready
from bident.engine.servable import LoadedModel, Servable
from bident.engine.state import UNLOADED, State, VersionState, end_loading, load_failed, not_serving, standing
from bident.errors import ServeError
from bident.model.folder import ModelFolder

logger = logging.getLogger("bident.load")

_AS_WANTED = (State.READY, State.UNLOADING)
"""States in which nothing is amiss: an unload that waits for its last answers was asked for."""


@dataclass
class _Entry:
    """Everything known of one model name."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    states: dict[int, VersionState] = field(default_factory=dict)
    serving: dict[int, Servable] = field(default_factory=dict)
    draining: list[Servable] = field(default_factory=list)
    routed: list[str] = field(default_factory=list)
    operations: int = 0
    fingerprint: object = None
    attempted: object = None


class Lifecycle:
    """The loaded models. Every method runs on the event loop."""

    def __init__(
        self,
        loader: Loader,
        loop: asyncio.AbstractEventLoop,
        clients: Clients,
        *,
        threads: int = 64,
        cache: ResponseCache | None = None,
        limiter: RateLimiter | None = None,
        measures: Measures = Measures(),  # noqa: B008 - it is frozen
    ) -> None:
        """``threads`` models load, or wait for their turn or a worker, at the same time.

        ``cache``: where models that want it keep answers; ``limiter``: when instances run; ``measures``: what counts.
        """
        self._loader = loader
        self._loop = loop
        self._clients = clients
        self.cache = cache
        self._limiter = limiter
        self.measures = measures
        self._threads = LoadingThreads(loop, threads)
        self._entries: dict[str, _Entry] = {}
        self.models: Models
        """Whom models may ask while they run; set before anything is loaded."""
        self.routes: dict[tuple[str, str], Servable] = {}
        """Who answers for a name and a version ("" for the latest), now."""

    # What a request needs

    def find(self, name: str, version: str) -> Servable:
        """The servable that answers for ``name`` and ``version`` ("" is the highest ready one)."""
        servable = self.routes.get((name, version))
        if servable is None and (plain := version.lstrip("0")):  # to Triton 01 is 1
            servable = self.routes.get((name, plain))
        if servable is None:
            entry = self._entries.get(name)
            raise not_serving(name, version, entry.states if entry else None)
        return servable

    # What operators ask

    def servables(self) -> list[Servable]:
        """Every version in service, by name and version."""
        return [
            entry.serving[version] for _, entry in sorted(self._entries.items()) for version in sorted(entry.serving)
        ]

    def holders(self, name: str) -> list[Servable]:
        """Whatever may hold requests for ``name``: what is in service, and what it replaced and still drains."""
        entry = self._entries.get(name)
        return [*entry.serving.values(), *entry.draining] if entry else []

    def versions(self, name: str) -> list[int]:
        """The versions of ``name`` in service, ascending."""
        entry = self._entries.get(name)
        return sorted(entry.serving) if entry else []

    def states(self, name: str) -> dict[int, VersionState]:
        """Where each known version of ``name`` stands."""
        entry = self._entries.get(name)
        return entry.states if entry else {}

    def failure(self, name: str) -> str | None:
        """Why no version of ``name`` is in service; None if it was never loaded."""
        entry = self._entries.get(name)
        return None if entry is None else standing(entry.states)

    async def settled(self, name: str) -> None:
        """Return once no load or unload of ``name`` that has begun is still going on."""
        if name in self._entries:
            async with self._exclusive(name):
                pass

    def names(self) -> list[str]:
        """Every name that was ever loaded or tried."""
        return sorted(self._entries)

    def all_ready(self) -> bool:
        """Triton's strict readiness: every known version is ready, or was unloaded on purpose, or is about to be.

        An ensemble is no less ready than its members, which are asked for themselves.
        """
        return all(
            entry.states
            and all(s.state in _AS_WANTED or s.reason == UNLOADED for s in entry.states.values())
            and all(servable.config.steps or servable.is_available for servable in entry.serving.values())
            for entry in self._entries.values()
        )

    def fingerprint(self, name: str) -> object:
        """What the folder looked like from which ``name`` is served; None if it is not."""
        entry = self._entries.get(name)
        return entry.fingerprint if entry else None

    def attempted(self, name: str) -> object:
        """What the folder looked like at the last load of ``name``, whether it went well or not."""
        entry = self._entries.get(name)
        return entry.attempted if entry else None

    # What changes things

    async def load(
        self,
        folder: ModelFolder,
        *,
        refused: ServeError | None = None,
        unless_served: bool = False,
        gate: Gate | None = None,
    ) -> None:
        """Load or reload a model. Raises ServeError with Triton's words when it cannot be served.

        Nothing else is raised, whatever happens, and no version is left as loading. ``refused`` is why
        it cannot be served, where that is known beforehand. ``unless_served``: what is in service stays as it is.
        ``gate`` is waited for before the switch; what it raises ends the load.
        """
        async with self._exclusive(folder.name) as entry:
            if unless_served and entry.serving:
                return
            try:
                await self._load(folder, entry, refused, gate)
            except ServeError as error:
                self._note_failure(folder.name, entry, error)
                raise load_failed(folder.name, entry.states, error) from error
            except asyncio.CancelledError:
                end_loading(entry.states, "the load was cancelled")
                raise
            except Exception as error:
                logger.exception("loading '%s' failed", folder.name)
                told = readable(error)
                self._note_failure(folder.name, entry, told)
                raise load_failed(folder.name, entry.states, told) from error

    async def _load(self, folder: ModelFolder, entry: _Entry, refused: ServeError | None, gate: Gate | None) -> None:
        started = time.monotonic()
        entry.attempted = await self._threads.run(folder.fingerprint)
        if refused is not None:
            raise refused
        for version in await self._threads.run(self._loader.versions, folder):
            if version not in entry.serving:
                entry.states[version] = VersionState(State.LOADING)
        loaded = await self._threads.run(self._loader.load, folder)
        try:
            if loaded.config.steps:
                loaded.config = ensemble_members.complete(loaded.config, str(folder.config_path), self)
            serving = self._servables_of(entry, loaded)
        except BaseException:
            with suppress(Exception):
                await self._threads.run(loaded.close)
            raise
        await make_ready(serving.values(), loaded.samples, self._threads.run, gate)
        for servable in serving.values():
            servable.stats.load_seconds = time.monotonic() - started
        entry.fingerprint = entry.attempted
        self._put_into_service(loaded.config.name, entry, serving)

    def refuse(self, name: str, error: ServeError) -> None:
        """Note why ``name`` cannot be loaded, where that shows before its folder is known; what serves goes on."""
        self._note_failure(name, self._entries.setdefault(name, _Entry()), error)

    async def unload(self, name: str) -> None:
        """Take a model out of service. Returns once no new request reaches it; what it has accepted is answered."""
        if name not in self._entries:
            return
        async with self._exclusive(name) as entry:
            entry.fingerprint = entry.attempted = None
            for version, servable in list(entry.serving.items()):
                entry.states[version] = VersionState(State.UNLOADING)
                self._retire(name, entry, servable)
            for version, state in entry.states.items():
                if state.state is not State.UNLOADING:
                    entry.states[version] = VersionState(State.UNAVAILABLE, UNLOADED)
            entry.serving.clear()
            self._route(name, entry)

    def forget(self, name: str) -> None:
        """Drop what is known of a model that has gone from the repository (call after ``unload``)."""
        entry = self._entries.get(name)
        if entry is not None and not (entry.serving or entry.draining or entry.operations):
            del self._entries[name]

    def in_flight(self) -> dict[str, int]:
        """How many versions of which models still have requests to answer."""
        busy = {name: len(entry.draining) for name, entry in self._entries.items() if entry.draining}
        for servable in self.servables():
            if servable.scheduler.has_sequences or not servable.scheduler.is_idle:
                busy[servable.name] = busy.get(servable.name, 0) + 1
        return busy

    async def retire_all(self, seconds: float) -> list[str]:
        """Take everything out of service for good and close it, also what was being loaded, in up to ``seconds``.

        Returns the names of models that were not closed by then.
        """
        deadline = time.monotonic() + seconds
        self.routes.clear()
        for name, entry in self._entries.items():
            serving, entry.serving = entry.serving, {}
            for servable in serving.values():
                self._retire(name, entry, servable)
        while left := sorted(name for name, entry in self._entries.items() if entry.draining or entry.operations):
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.005)
        return left

    def close(self) -> bool:
        """Stop the loading threads. Returns whether one is still in a load, which is abandoned."""
        return self._threads.close()

    @asynccontextmanager
    async def _exclusive(self, name: str) -> AsyncIterator[_Entry]:
        """The entry of ``name``, once every earlier operation on it has ended; nobody forgets it meanwhile."""
        entry = self._entries.setdefault(name, _Entry())
        entry.operations += 1
        try:
            async with entry.lock:
                yield entry
        finally:
            entry.operations -= 1

    def _note_failure(self, name: str, entry: _Entry, error: ServeError) -> None:
        logger.error("failed to load '%s': %s", name, error.message)
        if not end_loading(entry.states, error.message) and not entry.serving:
            entry.states[1] = VersionState(State.UNAVAILABLE, error.message)

    def _servables_of(self, entry: _Entry, loaded: LoadedModel) -> dict[int, Servable]:
        """What can take the place of what ``entry`` serves, whose figures it continues."""
        made: dict[int, Servable] = {}
        for version in loaded.instances:
            old = entry.serving.get(version)
            stats = self.measures.stats(loaded.config, old.stats if old is not None else None)
            servable = EnsembleServable if loaded.config.steps else Servable
            try:
                made[version] = servable(
                    loaded,
                    version,
                    stats,
                    self._loop,
                    self._clients,
                    self.models,
                    cache=self.cache,
                    limiter=self._limiter,
                )
            except BaseException:
                for other in made.values():
                    other.leave()
                raise
        return made

    def _put_into_service(self, name: str, entry: _Entry, serving: dict[int, Servable]) -> None:
        replaced, entry.serving = entry.serving, serving
        entry.states = {version: state for version, state in entry.states.items() if state.state is State.UNLOADING}
        for version in entry.serving:
            entry.states[version] = VersionState(State.READY)
        self._route(name, entry)
        for version, servable in replaced.items():
            if version not in entry.serving:
                entry.states[version] = VersionState(State.UNLOADING)
            self._retire(name, entry, servable)
        logger.info("successfully loaded '%s'", name)

    def _route(self, name: str, entry: _Entry) -> None:
        """Make the routes of ``name`` agree with what is in service."""
        for version in entry.routed:
            del self.routes[name, version]
        wanted = {str(version): servable for version, servable in entry.serving.items()}
        if entry.serving:
            wanted[""] = entry.serving[max(entry.serving)]
        self.routes.update({(name, version): servable for version, servable in wanted.items()})
        entry.routed = list(wanted)

    def _retire(self, name: str, entry: _Entry, servable: Servable) -> None:
        entry.draining.append(servable)

        def closed() -> None:
            entry.draining.remove(servable)
            state = entry.states.get(servable.version)
            last = all(other.version != servable.version for other in entry.draining)
            if last and state is not None and state.state is State.UNLOADING:
                entry.states[servable.version] = VersionState(State.UNAVAILABLE, UNLOADED)
                logger.info("successfully unloaded '%s' version %d", name, servable.version)

        servable.retire(closed)
