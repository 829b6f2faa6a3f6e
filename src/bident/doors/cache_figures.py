"""What the metrics page shows of the response cache: nothing, unless there is one and models use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bident.engine.cache import ResponseCache
from bident.engine.servable import Servable
from bident.engine.stats import ModelStats
from bident.observe.metrics import Family, render

_US = 1000

_PER_MODEL: tuple[tuple[Family, Callable[[ModelStats], int]], ...] = (
    (
        Family("nv_cache_num_hits_per_model", "counter", "Requests answered from the response cache"),
        lambda stats: stats.cache_hit.count,
    ),
    (
        Family("nv_cache_hit_duration_per_model", "counter", "Microseconds it took to find those answers"),
        lambda stats: stats.cache_hit.ns // _US,
    ),
    (
        Family("nv_cache_num_misses_per_model", "counter", "Requests whose answer was not in the response cache"),
        lambda stats: stats.cache_miss.count,
    ),
    (
        Family(
            "nv_cache_miss_duration_per_model",
            "counter",
            "Microseconds it took to look for those answers and to keep them",
        ),
        lambda stats: stats.cache_miss.ns // _US,
    ),
)
_OF_THE_SERVER: tuple[tuple[Family, Callable[[ResponseCache], float]], ...] = (
    (
        Family("nv_cache_util", "gauge", "Share of the response cache that is in use, 0 to 1"),
        lambda cache: cache.used / cache.size,
    ),
    (Family("nv_cache_num_entries", "gauge", "Answers in the response cache"), lambda cache: cache.count),
    (
        Family("nv_cache_num_evictions", "gauge", "Answers that had to go from the response cache to make room"),
        lambda cache: cache.evictions,
    ),
)

FAMILIES = tuple(family for family, _ in (*_PER_MODEL, *_OF_THE_SERVER))
"""All of them, in the order of the page."""


def cache_figures(
    cache: ResponseCache | None, servables: Iterable[Servable], labels: Callable[[Servable], dict[str, str]]
) -> Iterator[str]:
    """The lines; ``labels`` gives those of a version."""
    caching = [servable for servable in servables if servable.caching is not None]
    if caching:
        for family, value in _PER_MODEL:
            yield render(family, ((labels(servable), value(servable.stats)) for servable in caching))
    if cache is not None:
        for of_server, level in _OF_THE_SERVER:
            yield render(of_server, [({}, level(cache))])
