"""The metrics page on port 8002, with Triton's names, labels and units."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from bident.doors.http.exchange import Exchange
from bident.doors.http.routes import Routes
from bident.engine.engine import Engine
from bident.engine.servable import Servable
from bident.engine.stats import FailureReason, ModelStats
from bident.observe.host import Host
from bident.observe.metrics import CONTENT_TYPE, Family, render

_US = 1000
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")

_COUNTERS: tuple[tuple[Family, Callable[[ModelStats], int]], ...] = (
    (
        Family("nv_inference_count", "counter", "Number of inferences performed (does not include cached requests)"),
        lambda stats: stats.inferences,
    ),
    (
        Family(
            "nv_inference_exec_count",
            "counter",
            "Number of model executions performed (does not include cached requests)",
        ),
        lambda stats: stats.executions,
    ),
    (
        Family(
            "nv_inference_request_duration_us",
            "counter",
            "Cumulative inference request duration in microseconds (includes cached requests)",
        ),
        lambda stats: stats.success.ns // _US,
    ),
    (
        Family(
            "nv_inference_queue_duration_us",
            "counter",
            "Cumulative inference queuing duration in microseconds (includes cached requests)",
        ),
        lambda stats: stats.queue.ns // _US,
    ),
    (
        Family(
            "nv_inference_compute_input_duration_us",
            "counter",
            "Cumulative compute input duration in microseconds (does not include cached requests)",
        ),
        lambda stats: stats.compute_input.ns // _US,
    ),
    (
        Family(
            "nv_inference_compute_infer_duration_us",
            "counter",
            "Cumulative compute inference duration in microseconds (does not include cached requests)",
        ),
        lambda stats: stats.compute_infer.ns // _US,
    ),
    (
        Family(
            "nv_inference_compute_output_duration_us",
            "counter",
            "Cumulative inference compute output duration in microseconds (does not include cached requests)",
        ),
        lambda stats: stats.compute_output.ns // _US,
    ),
)

_SUCCESS = Family("nv_inference_request_success", "counter", "Number of successful inference requests, all batch sizes")
_FAILURE = Family("nv_inference_request_failure", "counter", "Number of failed inference requests, all batch sizes")
_PENDING = Family(
    "nv_inference_pending_request_count",
    "gauge",
    "Instantaneous number of pending requests awaiting execution per-model.",
)
_LOAD = Family("nv_model_load_duration_secs", "gauge", "Model load time in seconds")
_PINNED_TOTAL = Family("nv_pinned_memory_pool_total_bytes", "gauge", "Pinned memory pool total memory size, in bytes")
_PINNED_USED = Family("nv_pinned_memory_pool_used_bytes", "gauge", "Pinned memory pool used memory size, in bytes")
_CPU = Family("nv_cpu_utilization", "gauge", "CPU utilization rate [0.0 - 1.0]")
_CPU_TOTAL = Family("nv_cpu_memory_total_bytes", "gauge", "CPU total memory (RAM), in bytes")
_CPU_USED = Family("nv_cpu_memory_used_bytes", "gauge", "CPU used memory (RAM), in bytes")

FAMILIES = (
    _SUCCESS,
    _FAILURE,
    *(family for family, _ in _COUNTERS),
    _PENDING,
    _LOAD,
    _PINNED_TOTAL,
    _PINNED_USED,
    _CPU,
    _CPU_TOTAL,
    _CPU_USED,
)
"""Everything the page shows, in its order."""


class MetricsPage:
    """Renders the figures of one engine."""

    def __init__(self, engine: Engine, *, host: bool = True) -> None:
        """``host``: whether the machine's own load is shown (``--allow-cpu-metrics``)."""
        self._engine = engine
        self._host = Host() if host else None

    def routes(self) -> Routes:
        """``/metrics``; any other path is an empty page, as with Triton."""
        routes = Routes(fallback=self._empty)
        routes.add("GET", "/metrics", self._page)
        return routes

    def render(self) -> str:
        """The page."""
        servables = self._engine.lifecycle.servables()
        parts = [
            render(_SUCCESS, ((_labels(s), s.stats.success.count) for s in servables)),
            render(_FAILURE, _failures(servables)),
        ]
        for family, value in _COUNTERS:
            parts.append(render(family, ((_labels(s), value(s.stats)) for s in servables)))
        parts.append(render(_PENDING, ((_labels(s), s.scheduler.pending) for s in servables)))
        parts.append(render(_LOAD, ((_labels(s), s.stats.load_seconds) for s in servables)))
        parts += [render(_PINNED_TOTAL, [({}, 0)]), render(_PINNED_USED, [({}, 0)])]
        if self._host is not None:
            parts.append(render(_CPU, [({}, self._host.processor_utilization())]))
            parts.append(render(_CPU_TOTAL, [({}, self._host.memory_total())]))
            parts.append(render(_CPU_USED, [({}, self._host.memory_used())]))
        return "".join(parts)

    def _page(self, exchange: Exchange) -> None:
        exchange.respond(200, (self.render().encode(),), CONTENT_TYPE)

    def _empty(self, exchange: Exchange) -> None:
        exchange.respond(200, (), CONTENT_TYPE)


def _labels(servable: Servable) -> dict[str, str]:
    # A character that a label's name cannot have would cost the scraper the whole page.
    tags = {f"_{_NOT_IN_NAMES.sub('_', key)}": value for key, value in servable.config.proto.metric_tags.items()}
    return {"model": servable.name, "version": str(servable.version), **tags}


def _failures(servables: Iterable[Servable]) -> Iterable[tuple[dict[str, str], float]]:
    for servable in servables:
        for reason in FailureReason:
            yield {**_labels(servable), "reason": reason.value}, servable.stats.failures[reason]
