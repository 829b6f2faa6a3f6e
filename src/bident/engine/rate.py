"""The rate limiter: which instance may run next, by the resources that instances declare.

Follows Triton's (``--rate-limit=execution_count``): an instance runs while it holds what its
``instance_group.rate_limiter`` asks for. When instances wait, the one with the smallest product of
executions and priority goes first. Two things are better than with Triton: whoever waits holds up
only those who want the same resources, and an instance that waits for another model's answer, or load,
lends what it holds, or the two could wait for each other for ever. Used on the event loop only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bident.errors import ConfigError
from bident.model.config import ModelConfig
from bident.settings.values import RateLimitResource

_GLOBAL = "global"
_DEVICE = "device"
_CPU = 0
"""The number of the one device there is."""

Resource = tuple[str, str]
"""Where a resource counts (on the device, or for all devices together) and its name."""


class Turn:
    """One instance, as the limiter sees it."""

    def __init__(self, limiter: RateLimiter, model: str, needs: dict[Resource, int], priority: int) -> None:
        """``needs``: how much of which resource the instance takes while it runs."""
        self.model = model
        self.needs = needs
        self.executions = 0
        """How often it has run; counted by its lane."""
        self.lends: Callable[[], bool] = bool
        """Whether the instance, although it runs, only waits for another model."""
        self._limiter = limiter
        self._priority = max(1, priority)
        self.run: Callable[[], None] | None = None
        """What to do when it is this instance's turn, while it waits for that."""

    @property
    def rank(self) -> int:
        """The smaller, the sooner."""
        return self.executions * self._priority

    @property
    def is_free(self) -> bool:
        """Whether the instance could run at once, and nobody who waits would come before it."""
        return self._limiter.is_free(self)

    def take(self, run: Callable[[], None]) -> None:
        """Have ``run`` called, now or later, once the resources are there; it keeps them until ``give_back``."""
        self._limiter.take(self, run)

    def give_back(self) -> None:
        """The instance has ended what it ran, or will not come to it."""
        self._limiter.give_back(self)

    def look(self) -> None:
        """The instance may have begun to lend."""
        self._limiter.serve()


class RateLimiter:
    """The resources of one server and who holds them."""

    def __init__(self, explicit: Sequence[RateLimitResource] = ()) -> None:
        """``explicit``: ``--rate-limit-resource``. Without any, there is as much of each as the neediest asks for."""
        self._explicit = explicit
        self._turns: list[Turn] = []
        self._holders: list[Turn] = []
        self._waiting: list[Turn] = []
        self._limits: dict[Resource, int] = {}
        self._is_serving = False

    def enlist(self, config: ModelConfig) -> list[Turn]:
        """A turn for each instance of a model. Raises ConfigError, in Triton's words, if one could never run."""
        turns = [
            Turn(self, config.name, _needs(group), group.rate_limiter.priority)
            for group in config.proto.instance_group
            for _ in range(max(1, group.count))
        ]
        self._limits = self._limits_for([*self._turns, *turns])
        self._turns += turns
        return turns

    def dismiss(self, turns: Iterable[Turn]) -> None:
        """These instances are no more."""
        for turn in turns:
            for place in (self._turns, self._holders, self._waiting):
                if turn in place:
                    place.remove(turn)
        self._limits = self._limits_for(self._turns)
        self.serve()

    def is_free(self, turn: Turn) -> bool:
        """Whether ``turn`` could run at once, and nobody waits for what it needs."""
        wanted = {resource for other in self._waiting for resource in other.needs}
        return wanted.isdisjoint(turn.needs) and self._fits(turn, self._used())

    def take(self, turn: Turn, run: Callable[[], None]) -> None:
        """Have ``run`` called when it is the turn of ``turn``."""
        turn.run = run
        self._waiting.append(turn)
        self.serve()

    def give_back(self, turn: Turn) -> None:
        """``turn`` holds nothing any more, and waits for nothing."""
        turn.run = None
        for place in (self._holders, self._waiting):
            if turn in place:
                place.remove(turn)
        self.serve()

    def serve(self) -> None:
        """Let all run that can."""
        if self._is_serving or not self._waiting:
            return
        self._is_serving = True  # who runs may end at once, and come here again
        try:
            while (turn := self._next()) is not None:
                self._waiting.remove(turn)
                self._holders.append(turn)
                run, turn.run = turn.run, None
                if run is not None:
                    run()
        finally:
            self._is_serving = False

    def _next(self) -> Turn | None:
        """Who runs next; None if all who wait have to go on waiting."""
        used = self._used()
        kept: set[Resource] = set()
        for turn in sorted(self._waiting, key=lambda turn: turn.rank):
            if kept.isdisjoint(turn.needs) and self._fits(turn, used):
                return turn
            kept.update(turn.needs)  # or one that needs much might never find enough at once
        return None

    def _used(self) -> Counter[Resource]:
        used: Counter[Resource] = Counter()
        for turn in self._holders:
            if not turn.lends():
                used.update(turn.needs)
        return used

    def _fits(self, turn: Turn, used: Counter[Resource]) -> bool:
        return all(used[resource] + count <= self._limits[resource] for resource, count in turn.needs.items())

    def _limits_for(self, turns: Iterable[Turn]) -> dict[Resource, int]:
        limits: dict[Resource, int] = {}
        users: dict[Resource, str] = {}
        for turn in turns:
            for resource, count in turn.needs.items():
                limits[resource] = max(count, limits.get(resource, 0))
                users[resource] = turn.model
        if self._explicit:
            for resource, needed in limits.items():
                limits[resource] = self._explicit_limit(resource, needed)
        for scope, name in limits:
            if scope == _GLOBAL and (_DEVICE, name) in limits:
                raise ConfigError(
                    f'Resource "{name}" is present as both global and device-specific resource in the model '
                    f"configuration: models '{users[_GLOBAL, name]}' and '{users[_DEVICE, name]}' declare it; "
                    "write global: true in both, or in none"
                )
        return limits

    def _explicit_limit(self, resource: Resource, needed: int) -> int:
        scope, name = resource
        counts = [
            given.amount
            for given in self._explicit
            if given.name == name and (scope == _GLOBAL or given.device in (None, _CPU))
        ]
        limit = max(counts, default=0)
        if limit < needed:
            raise ConfigError(
                f'Resource count for "{name}" is limited to {limit} which will prevent scheduling of one or more '
                f"model instances, the minimum required count is {needed}; "
                f"start the server with --rate-limit-resource={name}:{needed}, or declare less in rate_limiter"
            )
        return limit


def _needs(group: Any) -> dict[Resource, int]:
    return {
        (_GLOBAL if getattr(resource, "global") else _DEVICE, resource.name): resource.count
        for resource in group.rate_limiter.resources
    }
