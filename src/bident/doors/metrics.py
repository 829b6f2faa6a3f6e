"""The metrics page on port 8002, with Triton's names, labels and units."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import islice

from bident.doors.aside import aside
from bident.doors.cache_figures import FAMILIES as CACHE_FAMILIES
from bident.doors.cache_figures import cache_figures
from bident.doors.http.exchange import Exchange
from bident.doors.http.routes import Routes
from bident.doors.latency_figures import FAMILIES as LATENCY_FAMILIES
from bident.doors.latency_figures import latency_figures
from bident.engine.engine import Engine
from bident.engine.servable import Servable
from bident.engine.stats import FailureReason, ModelStats
from bident.model.folder import BETWEEN
from bident.model.metric_tags import label_of
from bident.observe.host import Host
from bident.observe.metrics import CONTENT_TYPE, Family, render

_US = 1000
_PIECE_SIZE = 64 * 1024
_PIECES_AT_ONCE = 4
"""So many pieces of what models measure themselves the event loop writes itself; a thread writes what is longer."""


def _counter(name: str, meaning: str) -> Family:
    return Family(f"nv_inference_{name}", "counter", meaning)


_COUNTS: tuple[tuple[Family, Callable[[ModelStats], int]], ...] = (
    (_counter("count", "Rows that the model has computed"), lambda stats: stats.inferences),
    (_counter("exec_count", "Times the model has run, whatever the batch"), lambda stats: stats.executions),
)
_DURATIONS: tuple[tuple[Family, Callable[[ModelStats], int]], ...] = (
    (
        _counter("request_duration_us", "Microseconds from receiving a request to its answer, summed over requests"),
        lambda stats: stats.success.ns // _US,
    ),
    (
        _counter("queue_duration_us", "Microseconds requests waited for an instance, summed over requests"),
        lambda stats: stats.queue.ns // _US,
    ),
    (
        _counter("compute_input_duration_us", "Microseconds spent on joining inputs, counted for each request"),
        lambda stats: stats.compute_input.ns // _US,
    ),
    (
        _counter("compute_infer_duration_us", "Microseconds spent in the model, counted for each request"),
        lambda stats: stats.compute_infer.ns // _US,
    ),
    (
        _counter("compute_output_duration_us", "Microseconds spent on answers, counted for each request"),
        lambda stats: stats.compute_output.ns // _US,
    ),
)

_SUCCESS = _counter("request_success", "Requests that were answered with a result")
_FAILURE = _counter("request_failure", "Requests that got no result, by reason")
_PENDING = Family("nv_inference_pending_request_count", "gauge", "Requests accepted and not yet running")
_LOAD = Family("nv_model_load_duration_secs", "gauge", "Seconds the last load of the model took")
_PINNED_TOTAL = Family("nv_pinned_memory_pool_total_bytes", "gauge", "Always 0: there is no GPU to pin memory for")
_PINNED_USED = Family("nv_pinned_memory_pool_used_bytes", "gauge", "Always 0: there is no GPU to pin memory for")
_CPU = Family("nv_cpu_utilization", "gauge", "Share of all cores that was busy since the last look, 0 to 1")
_CPU_TOTAL = Family("nv_cpu_memory_total_bytes", "gauge", "Bytes of memory this machine has")
_CPU_USED = Family("nv_cpu_memory_used_bytes", "gauge", "Bytes of memory in use on this machine")

FAMILIES = (
    _SUCCESS,
    _FAILURE,
    *(family for family, _ in (*_COUNTS, *_DURATIONS)),
    _PENDING,
    _LOAD,
    *CACHE_FAMILIES,
    _PINNED_TOTAL,
    _PINNED_USED,
    _CPU,
    _CPU_TOTAL,
    _CPU_USED,
    *LATENCY_FAMILIES,
)
"""Everything the page shows, in its order."""


class MetricsPage:
    """Renders the figures of one engine."""

    def __init__(
        self,
        engine: Engine,
        own: Callable[[], Iterable[str]] = tuple,
        *,
        host: bool = True,
        interval_seconds: float = 0.0,
        summed: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        """``own``: the lines, newline included, of what models measure themselves; their families are not ``nv_``.
        Any thread may go through them.

        ``host``: whether the machine's own load is shown (``--allow-cpu-metrics``); it is measured anew if the last
        measurement is older than ``interval_seconds``. ``summed`` makes of this
        server's page that of all workers, where there are others.
        """
        self._summed = summed
        self._engine = engine
        self._own = own
        self._host = Host(interval_seconds) if host else None

    def routes(self) -> Routes:
        """``/metrics``; any other path is an empty page, as with Triton."""
        routes = Routes(fallback=self._empty)
        routes.add("GET", "/metrics", self._page)
        return routes

    def render(self) -> str:
        """The page."""
        return "".join([self._of_the_server(), *self._own()])

    def _of_the_server(self) -> str:
        servables = self._engine.lifecycle.servables()
        parts = [
            render(_SUCCESS, ((_labels(s), s.stats.success.count) for s in servables)),
            render(_FAILURE, _failures(servables)),
        ]
        measures = self._engine.lifecycle.measures
        for family, value in (*_COUNTS, *(_DURATIONS if measures.counters else ())):
            parts.append(render(family, ((_labels(s), value(s.stats)) for s in servables)))
        parts.append(render(_PENDING, ((_labels(s), s.scheduler.pending) for s in servables)))
        parts.append(render(_LOAD, ((_labels(s), s.stats.load_seconds) for s in servables)))
        parts += cache_figures(self._engine.lifecycle.cache, servables, _labels)
        parts += [render(_PINNED_TOTAL, [({}, 0)]), render(_PINNED_USED, [({}, 0)])]
        if self._host is not None:
            load = self._host.load()
            parts.append(render(_CPU, [({}, load.processor)]))
            parts.append(render(_CPU_TOTAL, [({}, load.memory_total)]))
            parts.append(render(_CPU_USED, [({}, load.memory_used)]))
        parts += latency_figures(servables, _labels)
        return "".join(parts)

    async def whole(self) -> str:
        """The page, however long it is."""
        first = self._of_the_server()
        return first + await aside(lambda: "".join(self._own()))

    async def _answer_summed(self, exchange: Exchange, summed: Callable[[str], Awaitable[str]]) -> None:
        page = await summed(await self.whole())
        exchange.respond(200, (page.encode("utf-8", "replace"),), CONTENT_TYPE)

    def _page(self, exchange: Exchange) -> None:
        if self._summed is not None:
            exchange.respond_later(self._answer_summed(exchange, self._summed))
            return
        first = self._of_the_server().encode("utf-8", "replace")
        own = _pieces(self._own())
        begun = [first, *islice(own, _PIECES_AT_ONCE)]
        if len(begun) <= _PIECES_AT_ONCE:
            exchange.respond(200, begun, CONTENT_TYPE)
        else:
            exchange.respond_later(_finish(exchange, begun, own))

    def _empty(self, exchange: Exchange) -> None:
        exchange.respond(200, (), CONTENT_TYPE)


async def _finish(exchange: Exchange, begun: list[bytes], own: Iterator[bytes]) -> None:
    exchange.respond(200, [*begun, *await aside(partial(list, own))], CONTENT_TYPE)


def _pieces(lines: Iterable[str]) -> Iterator[bytes]:
    """``lines`` in pieces of some size, as UTF-8; one that cannot be written so must not cost all others the page."""
    piece: list[str] = []
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line)
        if size >= _PIECE_SIZE:
            yield "".join(piece).encode("utf-8", "replace")
            piece, size = [], 0
    if piece:
        yield "".join(piece).encode("utf-8", "replace")


def _labels(servable: Servable) -> dict[str, str]:
    tags = {label_of(key): value for key, value in servable.config.proto.metric_tags.items()}
    labels = {"model": servable.name, "version": str(servable.version), **tags}
    if servable.namespace:
        labels.update(model=servable.name.removeprefix(servable.namespace + BETWEEN), namespace=servable.namespace)
    return labels


def _failures(servables: Iterable[Servable]) -> Iterable[tuple[dict[str, str], float]]:
    for servable in servables:
        for reason in FailureReason:
            yield {**_labels(servable), "reason": reason.value}, servable.stats.failures[reason]
