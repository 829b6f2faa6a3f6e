"""One loaded version of one model: its instances, its queue, its gate, its figures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bident.backends.base import Instance
from bident.engine import memory
from bident.engine.admission import Admission
from bident.engine.clients import Clients
from bident.engine.lane import Lane
from bident.engine.scheduler import Scheduler
from bident.engine.stats import ModelStats
from bident.model.config import ModelConfig
from bident.wire.infer import InferRequest

logger = logging.getLogger("bident.load")


@dataclass
class LoadedModel:
    """What the loader made of a model folder: the completed config, and instances per version.

    ``labels`` maps an output's name to the labels of its indices.
    """

    config: ModelConfig
    labels: dict[str, list[str]] = field(default_factory=dict)
    instances: dict[int, list[Instance]] = field(default_factory=dict)

    def close(self) -> None:
        """Give everything back; for loads that did not make it into service."""
        for instances in self.instances.values():
            close_all(self.config.name, instances)


def close_all(name: str, instances: list[Instance]) -> None:
    """Close instances of the model ``name``: one that fails to close does not keep the others open."""
    for instance in instances:
        try:
            instance.close()
        except Exception:
            logger.exception("closing an instance of '%s' failed", name)


class Servable:
    """A version in service. Lives on the event loop."""

    def __init__(
        self,
        loaded: LoadedModel,
        version: int,
        stats: ModelStats,
        loop: asyncio.AbstractEventLoop,
        clients: Clients,
    ) -> None:
        self.name = loaded.config.name
        self.version = version
        self.config = loaded.config
        self.labels = loaded.labels
        self.stats = stats
        self.answer_templates: dict[object, Any] = {}
        """For a door: the constant parts of this version's answers, which go when it goes."""
        self._loop = loop
        self._lanes = [
            Lane(loaded.config, instance, loop, f"{self.name}_{index}")
            for index, instance in enumerate(loaded.instances[version])
        ]
        self._admission = Admission(loaded.config)
        self.scheduler = Scheduler(loaded.config, str(version), self._lanes, stats, loop, clients)

    def infer(self, request: InferRequest) -> None:
        """Check and queue ``request``; its ``reply`` is called now or later. Raises ServeError if it is refused."""
        self._admission.admit(request)
        self.scheduler.submit(request)

    def retire(self, closed: Callable[[], None]) -> None:
        """Answer what is queued and running, then close; ``closed`` is called on the loop at the end.

        The caller has made sure that no new request comes.
        """
        if self.scheduler.is_idle:
            self._close(closed)
        else:
            self.scheduler.on_idle = lambda: self._close(closed)

    def _close(self, closed: Callable[[], None]) -> None:
        self.scheduler.on_idle = None
        try:
            done = self._loop.run_in_executor(None, self._close_lanes)
        except RuntimeError:  # no thread can be started: a moment's wait is better than a leak
            self._close_lanes()
            self._loop.call_soon(closed)
        else:
            done.add_done_callback(lambda _: closed())

    def _close_lanes(self) -> None:
        lanes, self._lanes = self._lanes, []  # an executor that refused may still come to it later
        for lane in lanes:
            lane.close()
        memory.trim()
