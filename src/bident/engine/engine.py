"""The one verb: a request in, answers out. And the control of what there is to ask.

Doors talk to this class only. ``infer`` never waits; everything else that may take time is a
coroutine. All of it runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from bident.engine import index
from bident.engine.control_mode import ControlMode
from bident.engine.holdings import Holdings
from bident.engine.lifecycle import Lifecycle
from bident.engine.readying import Gate
from bident.engine.reconciler import Reconciler
from bident.engine.servable import Servable
from bident.engine.shared_memory import SharedMemory
from bident.engine.stats import Figures
from bident.errors import Code, ServeError, invalid_arg
from bident.model import overlay
from bident.model.folder import ModelFolder
from bident.model.repository import Repository
from bident.observe.log_settings import LogSettings
from bident.observe.tracing import Tracing
from bident.wire.infer import InferRequest

logger = logging.getLogger("bident.engine")


class Engine:
    """Serves the models of a repository."""

    def __init__(
        self,
        repository: Repository,
        lifecycle: Lifecycle,
        control: ControlMode,
        overlays: Path,
        *,
        strict: bool = True,
        shared_memory: SharedMemory | None = None,
        tracing: Tracing | None = None,
        log_settings: LogSettings | None = None,
    ) -> None:
        """``overlays``: a folder for models that a client sent. ``strict``: ready means every model is.

        ``shared_memory``: what clients register; without it, they may not. ``tracing``: which requests are traced;
        without it none until a client says so. ``log_settings``: what clients may change of the log.
        """
        self.tracing = tracing or Tracing()
        self.tracing.is_served = self._is_served
        self.log_settings = log_settings or LogSettings()
        self.shared_memory = shared_memory or SharedMemory(allowed=False)
        self.holdings = Holdings(repository)
        self.lifecycle = lifecycle
        lifecycle.models = self
        self._reconciler = Reconciler(self.holdings, lifecycle)
        self._control = control
        self._overlays = overlays
        self._strict = strict
        self._overridden: dict[str, ModelFolder] = {}
        self._wanted: set[str] = set()
        """Models that somebody asked for by name; others are there because an ensemble needs them."""
        self._left: set[str] = set()
        """Models with queued requests whose clients have gone in this turn of the loop."""
        self._started = False
        self._stopping = False

    # Inference

    def servable(self, name: str, version: str) -> Servable:
        """Who answers a request to ``name`` and ``version`` ("" for the latest), through its ``infer``.

        Raises Triton's error for what is unknown or not ready, and UNAVAILABLE while stopping.
        """
        if self._stopping:
            return self._going_on(name, version)
        return self.lifecycle.routes.get((name, version)) or self.model(name, version)

    def _going_on(self, name: str, version: str) -> Servable:
        """As ``servable`` while the server stops: only sequences that have begun go on."""
        servable = self.lifecycle.routes.get((name, version))
        if servable is None or not servable.scheduler.has_sequences:
            raise ServeError(Code.UNAVAILABLE, "Server exiting: it answers what it has accepted and takes nothing new")
        return servable

    def find(self, name: str, version: str) -> Servable:
        """Who answers a request that a model makes while it runs, also when the server takes no others any more."""
        return self.lifecycle.routes.get((name, version)) or self.model(name, version)

    def infer(self, request: InferRequest) -> None:
        """Check and queue ``request``; answers come through ``request.reply``. Raises ServeError if refused."""
        self.servable(request.model_name, request.model_version).infer(request)

    def cancel(self, request: InferRequest) -> None:
        """The client has gone: take ``request`` out of its queue if it still waits there."""
        request.cancelled = True
        if not self._left:
            # Thousands may go at once: a queue is searched once for all of them, not once for each.
            asyncio.get_running_loop().call_soon(self._discard_cancelled)
        self._left.add(request.model_name)

    def _discard_cancelled(self) -> None:
        left, self._left = self._left, set()
        for name in left:
            # Since they queued the model may have been reloaded or unloaded.
            for servable in self.lifecycle.holders(name):
                servable.scheduler.discard_cancelled()

    # Health and metadata

    @property
    def is_ready(self) -> bool:
        """Whether the server takes requests: started, and (strictly) every model ready."""
        return self._started and not self._stopping and (not self._strict or self.lifecycle.all_ready())

    def check_running(self) -> None:
        """Raise UNAVAILABLE while the server is on its way out."""
        if self._stopping:
            raise ServeError(Code.UNAVAILABLE, "Server exiting")

    def _is_served(self, name: str) -> bool:
        return self.is_model_ready(name, "")

    def is_model_ready(self, name: str, version: str) -> bool:
        """Whether ``name`` (that version of it) answers requests. Raises nothing."""
        try:
            return self.lifecycle.find(name, version).is_available
        except ServeError:
            return False

    async def check_ready(self) -> bool:
        """As ``is_ready``, having asked those models that have an opinion of their own (Python's ``is_ready``)."""
        if not self.is_ready:
            return False
        asked = [servable for servable in self.lifecycle.servables() if self._strict and not servable.config.steps]
        return all(await asyncio.gather(*(servable.is_ready() for servable in asked)))

    async def check_model_ready(self, name: str, version: str) -> bool:
        """As ``is_model_ready``, having asked the model too."""
        return self.is_model_ready(name, version) and await self.lifecycle.find(name, version).is_ready()

    def model(self, name: str, version: str) -> Servable:
        """The servable behind a name. Raises Triton's error for what is unknown or not ready."""
        try:
            return self.lifecycle.find(name, version)
        except ServeError as error:
            if (unclear := self.holdings.unclear(name)) is not None:
                raise unclear from None
            if self.lifecycle.states(name) or name not in self.holdings.names:
                raise
            # Triton tells what is there but was never loaded from what it has never heard of.
            cure = "load it first" if self._control.is_explicit else "it came after the server had started"
            raise ServeError(Code.NOT_FOUND, f"{error.message}; it is in the repository: {cure}") from None

    def stats(self, name: str, version: str) -> list[Servable]:
        """The servables whose figures are asked for: all, one model's, or one version's."""
        servables = self.lifecycle.servables()
        if not name:
            return servables
        named = [servable for servable in servables if servable.name == name]
        if not named:
            raise invalid_arg(f"requested model '{name}' is not available")
        chosen = [servable for servable in named if not version or str(servable.version) == version]
        if not chosen:
            raise invalid_arg(f"requested model version is not available for model '{name}'")
        return chosen

    async def figures(self, name: str, version: str) -> list[Figures]:
        """What the versions that are asked for have done, as ``stats`` chooses them."""
        return [Figures(one.name, one.version, one.stats) for one in self.stats(name, version)]

    @property
    def wanted(self) -> list[str]:
        """The models that somebody asked for by name, at the start or since."""
        return sorted(self._wanted)

    async def apply(self, part: str, verb: str, *arguments: Any) -> Any:
        """Call ``verb`` of ``part`` of this engine (``shared_memory``, ``tracing``, ``log_settings``); what it gives.

        What clients change goes this way, so that it reaches every worker where there are several.
        """
        return getattr(getattr(self, part), verb)(*arguments)

    # Model control

    async def index(self, *, ready: bool) -> list[dict[str, str]]:
        """The repository index, by name: what exists on disk and where each version stands."""
        listing = await self.holdings.look()
        names = sorted({*listing.names, *self.lifecycle.names()})
        return [row for name in names for row in index.rows(self.lifecycle, name, ready=ready)]

    async def load(
        self,
        name: str,
        config: str | None = None,
        files: dict[str, bytes] | None = None,
        *,
        gate: Gate | None = None,
    ) -> None:
        """The load API: from the repository, or with a config and files sent along.

        ``gate`` is waited for when the model is loaded and before it serves; what it raises ends the load.
        """
        self._check_control(name)
        loop = asyncio.get_running_loop()
        if config is None and not files:
            for one in await self.holdings.meant_by(name):
                await self._load_folder(await self.holdings.find(one), gate)
                self._replace_overlay(one, None)
                self._wanted.add(one)
            return
        base = await self.holdings.directory(name)
        folder = await loop.run_in_executor(None, overlay.materialise, name, base, config, files or {}, self._overlays)
        try:
            await self._reconciler.load(folder, gate)
        except BaseException:
            await loop.run_in_executor(None, folder.remove)
            raise
        self._replace_overlay(name, folder)
        self._wanted.add(name)

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        """The unload API: succeeds for what is not loaded, as Triton's does.

        With ``dependents`` goes what an ensemble is made of, unless another needs it or it was asked for by name.
        """
        self._check_control(name)
        for one in await self.holdings.meant_by(name):
            await self._unload(one, dependents=dependents)

    async def _unload(self, name: str, *, dependents: bool) -> None:
        members = self._members(name) if dependents else []
        await self.lifecycle.unload(name)
        self._replace_overlay(name, None)
        self._wanted.discard(name)
        for member in members:
            if member not in self._wanted and not self._is_needed(member):
                await self._unload(member, dependents=True)

    def _members(self, name: str) -> list[str]:
        """The models that ``name``, in service, is made of."""
        steps = self.lifecycle.find(name, "").config.steps if self.lifecycle.versions(name) else ()
        return list(dict.fromkeys(step.model for step in steps))

    def _is_needed(self, name: str) -> bool:
        """Whether an ensemble in service is made of ``name``."""
        return any(step.model == name for other in self.lifecycle.servables() for step in other.config.steps)

    def _check_control(self, name: str) -> None:
        """Raise ServeError when a client may not load or unload now, or nothing can have that name."""
        self.check_running()
        self._control.check_explicit()
        self.holdings.repository.check_name(name)

    async def _load_folder(self, folder: ModelFolder, gate: Gate | None) -> None:
        loop = asyncio.get_running_loop()
        fingerprint = await loop.run_in_executor(None, folder.fingerprint)
        unchanged = fingerprint == self.lifecycle.fingerprint(folder.name) and folder.name not in self._overridden
        if unchanged and self.is_model_ready(folder.name, ""):
            logger.info("'%s' has not changed since it was loaded", folder.name)
            return
        await self._reconciler.load(folder, gate)

    def _replace_overlay(self, name: str, folder: ModelFolder | None) -> None:
        old = self._overridden.pop(name, None)
        if folder is not None:
            self._overridden[name] = folder
        if old is not None:
            asyncio.get_running_loop().run_in_executor(None, old.remove)

    # Start, poll, stop

    async def start(self, names: list[str] | None) -> dict[str, ServeError]:
        """Load ``names`` (None: all there are) and open for requests. Returns what could not be loaded."""
        present = (await self._reconciler.look()).names
        asked = [one for name in dict.fromkeys(names or ()) for one in await self.holdings.meant_by(name)]
        self._wanted.update(present if names is None else asked)
        failures = await self._reconciler.load_all(present if names is None else asked)
        self._started = True
        return failures

    async def poll(self) -> None:
        """Bring what is loaded in line with the repository: new, changed and vanished models, side by side.

        Models that are still loading are left to that: another look may begin before this one has ended.
        """
        await self._reconciler.follow_all()

    def stop_accepting(self) -> None:
        """From now on new requests are refused; accepted ones are answered, and sequences under way may go on."""
        self._stopping = True
        for servable in self.lifecycle.servables():
            servable.scheduler.drain(closing=False)
