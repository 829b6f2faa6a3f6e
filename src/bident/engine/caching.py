"""The way to a model whose config enables the response cache: past the queue if the answer is known.

Figures are counted as Triton counts them (``infer_stats.cc``): a hit is a success that neither ran
nor counts as an inference; a miss is a success whose answer was then offered to the cache, and its
time is that of looking and keeping. Requests that fail are neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic_ns

from bident.engine.cache import Entry, ResponseCache, key_of
from bident.engine.settle import Settler
from bident.engine.stats import FailureReason, ModelStats
from bident.errors import ServeError
from bident.model.config import ModelConfig
from bident.wire.infer import InferRequest, InferResponse, Outcome


class Caching:
    """Stands before the scheduler of one model version. Lives on the event loop."""

    def __init__(
        self,
        submit: Callable[[InferRequest], None],
        config: ModelConfig,
        version: str,
        stats: ModelStats,
        cache: ResponseCache,
        makers: Callable[[], Sequence[object]] = list,
    ) -> None:
        """``submit``: the scheduler's; ``makers``: who makes the answers now, where the version itself does not."""
        self._submit = submit
        self._name = config.name
        self._version = version
        self._stats = stats
        self._settler = Settler(config, version, stats)
        self._cache = cache
        self._find_makers = makers
        self._makers: Sequence[object] = []
        self._owner = object()
        """Whose entries ours are: those of a reloaded model, or of other makers, are not found any more."""

    def submit(self, request: InferRequest) -> None:
        """Answer ``request`` before this returns if its answer is kept; else queue it, and keep its answer.

        Raises ServeError if it cannot be queued.
        """
        start_ns = monotonic_ns()
        try:
            key = key_of(request)
        except ServeError:  # its batch will find that too, and tell the client
            self._submit(request)
            return
        makers = self._find_makers()
        if makers != self._makers:
            self.forget()
            self._makers, self._owner = makers, object()
        entry = self._cache.lookup(self._owner, key)
        lookup_ns = monotonic_ns() - start_ns
        if entry is None:
            request.reply = partial(self._keep, request.reply, (self._owner, key), lookup_ns)
            self._submit(request)
        else:
            self._answer(request, entry, lookup_ns)

    def forget(self) -> None:
        """Drop what has been kept."""
        self._cache.forget(self._owner)

    def _answer(self, request: InferRequest, entry: Entry, lookup_ns: int) -> None:
        response = InferResponse(self._name, self._version, request.id, entry.columns(), 0, -1)
        response.parameters = entry.parameters
        outcome = self._settler.reply(request, response)
        if outcome is Outcome.LATER:
            response.settled = partial(self._count, request, lookup_ns)
        else:
            self._count(request, lookup_ns, outcome is not Outcome.FAILED)

    def _count(self, request: InferRequest, lookup_ns: int, answered: bool) -> None:
        if answered:
            self._stats.record_cache_hit(monotonic_ns() - request.received_ns, lookup_ns)
        else:
            self._settler.note_failure(request, FailureReason.OTHER)
        if request.trace is not None:
            request.trace.end()

    def _keep(
        self,
        reply: Callable[[InferResponse], Outcome],
        place: tuple[object, bytes],
        lookup_ns: int,
        response: InferResponse,
    ) -> Outcome:
        """Have ``response`` written, and keep it in ``place``, unless others make the answers by now."""
        outcome = reply(response)
        if response.error is None:
            start_ns = monotonic_ns()
            owner, key = place
            if owner is self._owner:
                self._cache.insert(owner, key, response)
            self._stats.record_cache_miss(lookup_ns + monotonic_ns() - start_ns)
        return outcome
