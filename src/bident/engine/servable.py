"""One loaded version of one model: its instances, its queue, its gate, its figures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from bident.backends.base import AnyInstance, Instance, RequestInstance
from bident.engine import memory
from bident.engine.admission import Admission
from bident.engine.cache import ResponseCache
from bident.engine.caching import Caching
from bident.engine.calls import Calls, Models
from bident.engine.clients import Clients
from bident.engine.lane import Lane
from bident.engine.rate import RateLimiter
from bident.engine.rated_lane import RatedLane, RatedRequestLane
from bident.engine.request_lane import RequestLane
from bident.engine.scheduler import Scheduler
from bident.engine.sequence.scheduler import SequenceScheduler
from bident.engine.sequence.states import executed_config
from bident.engine.settle import Settler
from bident.engine.stats import ModelStats
from bident.engine.traced import follow
from bident.engine.warmup import InPool, Sample, Warmup
from bident.model.config import ModelConfig
from bident.wire.infer import InferRequest
from bident.wire.trace import Trace

logger = logging.getLogger("bident.load")


@dataclass
class LoadedModel:
    """What the loader made of a model folder: the completed config, and instances per version.

    ``labels`` maps an output's name to the labels of its indices, ``initial_states`` the input of an implicit
    state to what it is when a sequence starts. ``samples`` are what warms the instances up.
    ``namespace`` is the repository that the model lies in, where those are namespaces.
    """

    config: ModelConfig
    labels: dict[str, list[str]] = field(default_factory=dict)
    instances: dict[int, list[AnyInstance]] = field(default_factory=dict)
    initial_states: dict[str, NDArray[Any]] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    namespace: str = ""

    def close(self) -> None:
        """Give everything back; for loads that did not make it into service."""
        for instances in self.instances.values():
            close_all(self.config.name, instances)


def close_all(name: str, instances: list[AnyInstance]) -> None:
    """Close instances of the model ``name``: one that fails to close does not keep the others open.

    Those that live on the event loop have not been started, and hold nothing.
    """
    for instance in instances:
        try:
            if isinstance(instance, Instance):
                instance.close()
        except Exception:
            logger.exception("closing an instance of '%s' failed", name)


DESERTED_SECONDS = 30.0
"""So long, and at most twice as long, a model that is being unloaded may keep requests that nobody waits for."""


class Scheduling(Protocol):
    """What decides when the requests of a version run."""

    on_idle: Callable[[], None] | None
    """Called whenever nothing is queued or running any more."""

    @property
    def pending(self) -> int:
        """Requests accepted and not yet executing."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued or running."""

    @property
    def has_sequences(self) -> bool:
        """Whether sequences are under way, whose next requests are taken even while the server stops."""

    def drain(self, *, closing: bool) -> None:
        """Let no sequence begin any more, and, if it is ``closing``, none go on."""

    def submit(self, request: InferRequest) -> None:
        """Take ``request``, which is answered now or later. Raises ServeError if it is refused."""

    def discard_cancelled(self) -> None:
        """Give up requests whose client has gone."""


class Servable:
    """A version in service. Lives on the event loop."""

    def __init__(
        self,
        loaded: LoadedModel,
        version: int,
        stats: ModelStats,
        loop: asyncio.AbstractEventLoop,
        clients: Clients,
        models: Models,
        *,
        cache: ResponseCache | None = None,
        limiter: RateLimiter | None = None,
    ) -> None:
        """``models``: whom this model may ask. ``cache`` and ``limiter``: those of the server, if it has them.

        Raises ConfigError when the limiter could never let an instance run.
        """
        self.name = loaded.config.name
        self.version = version
        self.namespace = loaded.namespace
        self.config = loaded.config
        self._labels = loaded.labels
        self._initial_states = loaded.initial_states
        self.stats = stats
        self.json_templates: dict[object, Any] = {}
        """For the JSON door: the constant parts of this version's answers, which go when it goes."""
        self.message_templates: dict[object, Any] = {}
        """The same for the gRPC door."""
        self._loop = loop
        self._lanes: list[Lane] = []
        self.request_lanes: list[RequestLane] = []
        self._limiter = limiter
        self._turns = limiter.enlist(loaded.config) if limiter is not None else []
        executed = executed_config(loaded.config)
        for index, instance in enumerate(loaded.instances[version]):
            if isinstance(instance, RequestInstance):
                self.request_lanes.append(self._request_lane(executed, index, instance, models))
            else:
                self._lanes.append(self._lane(executed, index, instance))
        self._admission = Admission(loaded.config)
        self.scheduler = self._make_scheduler(stats, clients, models)
        self.caching = self._caching(cache)
        """What keeps answers of this version; None if nothing does."""
        self._submit = self.scheduler.submit if self.caching is None else self.caching.submit
        self._holds = 0
        self._closing: asyncio.Task[None] | None = None

    def _make_scheduler(self, stats: ModelStats, clients: Clients, models: Models) -> Scheduling:
        lanes: list[Lane | RequestLane] = [*self._lanes, *self.request_lanes]
        if self.config.sequence_batching is not None:
            initial = self._initial_states
            return SequenceScheduler(self.config, str(self.version), lanes, stats, self._loop, initial)
        return Scheduler(self.config, str(self.version), lanes, stats, self._loop, clients)

    def _lane(self, config: ModelConfig, index: int, instance: Instance) -> Lane:
        label = f"{self.name}_{index}"
        if self._turns:
            return RatedLane(config, instance, self._loop, label, self._turns[index])
        return Lane(config, instance, self._loop, label)

    def _request_lane(self, config: ModelConfig, index: int, instance: RequestInstance, models: Models) -> RequestLane:
        if self._turns:
            return RatedRequestLane(config, instance, models, self._turns[index])
        return RequestLane(config, instance, Calls(models))

    def _caching(self, cache: ResponseCache | None) -> Caching | None:
        if not self.config.proto.response_cache.enable:
            return None
        if cache is None:
            logger.warning(
                "'%s' enables the response cache, but the server has none: start it with --cache-config "
                "local,size=<bytes>",
                self.name,
            )
            return None
        return Caching(self.scheduler.submit, self.config, str(self.version), self.stats, cache, self._makers)

    @property
    def labels(self) -> dict[str, list[str]]:
        """The labels of an output's indices, by output."""
        return self._labels

    @property
    def members(self) -> list[Servable]:
        """The versions that take part in answering a request: those of an ensemble's steps."""
        return []

    def _makers(self) -> list[Servable]:
        """Who makes the answers, beside this: the members, and theirs, as they are now."""
        members = self.members
        return [*members, *(maker for member in members for maker in member._makers())]

    @property
    def is_available(self) -> bool:
        """Whether an instance is there to answer requests."""
        return not self.request_lanes or any(lane.is_available for lane in self.request_lanes)

    @property
    def reason(self) -> str:
        """Why no instance, or not every one, is there; empty if all are."""
        gone = [lane for lane in self.request_lanes if not lane.is_available]
        if not gone:
            return ""
        reasons = "; ".join(sorted({lane.reason for lane in gone}))
        return f"{len(gone)} of {len(self.request_lanes)} instances: {reasons}"

    async def is_ready(self) -> bool:
        """Whether an instance is there, and each that is there says itself that it is ready."""
        if not self.is_available:
            return False
        present = [lane for lane in self.request_lanes if lane.is_available]
        return all(await asyncio.gather(*(lane.is_ready() for lane in present)))

    async def warm_up(self, samples: Sequence[Sample], in_pool: InPool) -> None:
        """Have every instance, all of which have been started, answer ``samples``. Raises ConfigError.

        ``in_pool`` runs what must not hold the event loop up. The caller closes this if anything is raised.
        """
        settler = Settler(self.config, str(self.version), self.stats)
        warmup = Warmup(self.config, samples, settler, self._initial_states)
        try:
            await warmup.run_on_threads(self._lanes, in_pool)
        except asyncio.CancelledError:
            self._lanes = []  # a thread is still inside: closing must not take from it what it uses
            raise
        running = [asyncio.ensure_future(warmup.run_on(lane)) for lane in self.request_lanes]
        try:
            await asyncio.gather(*running)
        finally:
            for run in running:
                run.cancel()

    async def start(self) -> None:
        """Have the instances started that live on the event loop. Raises ServeError; then all are closed."""
        starting = [asyncio.ensure_future(lane.start()) for lane in self.request_lanes]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            for start in starting:
                start.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            await self.close()
            raise

    def infer(self, request: InferRequest) -> None:
        """Check and queue ``request``; its ``reply`` is called now or later. Raises ServeError if it is refused."""
        if request.trace is not None:
            self._infer_traced(request, request.trace)
            return
        self._admission.admit(request)
        self._submit(request)

    def _infer_traced(self, request: InferRequest, trace: Trace) -> None:
        trace.start(request, self.name, self.version)
        follow(request, trace, runs=not self.config.steps)
        try:
            self._admission.admit(request)
            trace.queue(request.inputs.values())
            self._submit(request)
        except BaseException as error:
            trace.fail(error)
            trace.end()
            raise

    def hold(self) -> None:
        """Keep this open, even if it is retired: a request that is under way elsewhere may come to need it."""
        self._holds += 1

    def release(self) -> None:
        """Take back one ``hold``."""
        self._holds -= 1
        if not self._holds and self.scheduler.on_idle is not None and self.scheduler.is_idle:
            self.scheduler.on_idle()

    def retire(self, closed: Callable[[], None]) -> None:
        """Answer what is queued and running, then close; ``closed`` is called on the loop at the end.

        The caller has made sure that no new request comes, other than from who holds this. As long as
        somebody waits for an answer, so does this, as Triton does. Requests that everybody has gone
        from, and that a model does not end (it hangs, or its process is stopped), are given up after
        ``DESERTED_SECONDS`` to twice that: they get UNAVAILABLE, and instances that can be ended are, by
        force if need be. Those that run on threads of this process cannot: they are waited for.
        """
        self.scheduler.drain(closing=True)
        self.scheduler.on_idle = lambda: self._close(closed)
        if self.scheduler.is_idle:
            self.scheduler.on_idle()
        if self.scheduler.on_idle is not None and self.request_lanes and not self._lanes:
            self._loop.call_later(DESERTED_SECONDS, self._look_for_waiting, closed, False)

    def _look_for_waiting(self, closed: Callable[[], None], was_deserted: bool) -> None:
        """Close if nobody waits now, nor did when this was called before; else look again later."""
        if self.scheduler.on_idle is None:
            return
        is_deserted = (
            not self._holds and not self.scheduler.pending and all(lane.is_deserted for lane in self.request_lanes)
        )
        if not (is_deserted and was_deserted):
            self._loop.call_later(DESERTED_SECONDS, self._look_for_waiting, closed, is_deserted)
            return
        logger.warning(
            "'%s' version %d does not end requests that nobody waits for any more: it is unloaded without waiting",
            self.name,
            self.version,
        )
        self._close(closed)

    def _close(self, closed: Callable[[], None]) -> None:
        if self._holds:
            return
        self.scheduler.on_idle = None
        self._closing = self._loop.create_task(self.close())
        self._closing.add_done_callback(lambda _: closed())

    def leave(self) -> None:
        """Give back what is the server's: a share of its cache, and a place in its rate limiter."""
        if self.caching is not None:
            self.caching.forget()
        if self._limiter is not None:
            self._limiter.dismiss(self._turns)

    async def close(self) -> None:
        """Close all instances; one that fails to close does not keep the others open."""
        self.leave()
        for outcome in await asyncio.gather(*(lane.close() for lane in self.request_lanes), return_exceptions=True):
            if isinstance(outcome, Exception):
                logger.error("closing an instance of '%s' failed", self.name, exc_info=outcome)
        try:
            done = self._loop.run_in_executor(None, self._close_lanes)
        except RuntimeError:  # no thread can be started: a moment's wait is better than a leak
            self._close_lanes()
        else:
            await done

    def _close_lanes(self) -> None:
        lanes, self._lanes = self._lanes, []  # an executor that refused may still come to it later
        for lane in lanes:
            lane.close()
        memory.trim()
