"""Which model is loaded before which: the members of an ensemble before the ensemble."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from bident.engine.lifecycle import Lifecycle
from bident.engine.loader import is_ensemble
from bident.errors import ConfigError, ServeError
from bident.model.folder import ModelFolder


async def members_of(folder: ModelFolder) -> list[str]:
    """The models that ``folder``, if it is an ensemble, is made of; none if its config cannot be read."""
    try:
        proto = await asyncio.get_running_loop().run_in_executor(None, folder.raw_config)
    except ServeError:  # its load will say so
        return []
    return list(dict.fromkeys(step.model_name for step in proto.ensemble_scheduling.step)) if is_ensemble(proto) else []


class LoadOrder:
    """Models that are loaded together, side by side as far as they do not wait for each other."""

    def __init__(self, lifecycle: Lifecycle, load_member: Callable[[str, LoadOrder], Awaitable[None]]) -> None:
        """``load_member`` loads what an ensemble needs and nobody has begun; it raises nothing."""
        self._lifecycle = lifecycle
        self._load_member = load_member
        self._loads: dict[str, asyncio.Future[None]] = {}
        self._awaits: dict[str, Sequence[str]] = {}
        self._circles: dict[str, ConfigError] = {}

    def begin(self, name: str, load: Awaitable[None]) -> None:
        """Have ``load`` run, which loads ``name``."""
        self._loads[name] = asyncio.ensure_future(load)

    async def finish(self) -> None:
        """Return once everything that was begun has ended."""
        await asyncio.gather(*self._loads.values())

    async def members_first(self, folder: ModelFolder) -> ConfigError | None:
        """Return once all members of the ensemble ``folder`` have been loaded, or that was tried.

        What is in service is not loaded again. Returns the error if an ensemble would be made of itself.
        """
        name = folder.name
        members = await members_of(folder)
        self._awaits[name] = members
        if not self._closes_circle(name, [name], set()):
            await self._tried(members)
        return self._circles.get(name)

    async def _tried(self, members: Sequence[str]) -> None:
        own = [name for name in members if name not in self._loads and not self._lifecycle.versions(name)]
        for name in own:
            self.begin(name, self._load_member(name, self))
        waited = [self._loads[name] for name in members if name in self._loads]
        try:
            if waited:
                await asyncio.wait(waited)
            for name in members:  # somebody else may be loading it
                await self._lifecycle.settled(name)
        except asyncio.CancelledError:
            for name in own:
                self._loads[name].cancel()
            raise

    def _closes_circle(self, name: str, path: list[str], seen: set[str]) -> bool:
        """Whether ``path``, which leads to ``name``, can be followed until it comes back to its beginning.

        From what is in ``seen`` it cannot.
        """
        seen.add(name)
        for member in self.members(name):
            if member == path[0]:
                for index, one in enumerate(path):
                    self._circles[one] = _circular(one, path[index - 1], path)
                return True
            if member not in seen and self._closes_circle(member, [*path, member], seen):
                return True
        return False

    def members(self, name: str) -> Sequence[str]:
        """What ``name`` is made of, as far as that has been looked at or is in service."""
        awaited = self._awaits.get(name)
        if awaited is not None:
            return awaited
        versions = self._lifecycle.versions(name)
        return [step.model for step in self._lifecycle.find(name, "").config.steps] if versions else []


def _circular(name: str, last: str, path: list[str]) -> ConfigError:
    return ConfigError(
        f"circular dependency between ensembles: {name} -> ... -> {last} -> {name}; "
        f"change a step of one of them, so that '{path[0]}' does not lead back to itself over "
        f"{' -> '.join([*path, path[0]])}"
    )
