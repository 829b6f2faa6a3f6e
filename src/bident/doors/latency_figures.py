"""What the metrics page shows of times beside their sums: quantiles and histograms, for those who want them.

Triton's ``--metrics-config`` ``summary_latencies`` and ``histogram_latencies``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import monotonic_ns

from bident.engine.measures import FIRST_RESPONSE
from bident.engine.servable import Servable
from bident.engine.summaries import Summaries
from bident.observe.metrics import Family, Sample, histogram_samples, render_samples
from bident.observe.quantiles import Summary


def _summary(name: str, meaning: str) -> Family:
    return Family(name, "summary", f"Microseconds {meaning}; quantiles are of the last minute")


_SUMMARIES: tuple[tuple[Family, Callable[[Summaries], Summary]], ...] = (
    (
        _summary("nv_inference_request_summary_us", "from receiving a request to its answer"),
        lambda summaries: summaries.request,
    ),
    (
        _summary("nv_inference_queue_summary_us", "a request waited for an instance"),
        lambda summaries: summaries.queue,
    ),
    (
        _summary("nv_inference_compute_input_summary_us", "spent on joining a request's inputs with others'"),
        lambda summaries: summaries.compute_input,
    ),
    (
        _summary("nv_inference_compute_infer_summary_us", "a request was in the model"),
        lambda summaries: summaries.compute_infer,
    ),
    (
        _summary("nv_inference_compute_output_summary_us", "spent on the answers of a request's batch"),
        lambda summaries: summaries.compute_output,
    ),
)
_CACHE_SUMMARIES: tuple[tuple[Family, Callable[[Summaries], Summary]], ...] = (
    (
        _summary("nv_cache_hit_summary_per_model", "it took to find an answer in the response cache"),
        lambda summaries: summaries.cache_hit,
    ),
    (
        _summary("nv_cache_miss_summary_per_model", "it took to find no answer there, and to keep the one that came"),
        lambda summaries: summaries.cache_miss,
    ),
)
_FIRST_RESPONSE = Family(
    FIRST_RESPONSE, "histogram", "Milliseconds from receiving a request to the first response of a decoupled model"
)

FAMILIES = (*(family for family, _ in (*_SUMMARIES, *_CACHE_SUMMARIES)), _FIRST_RESPONSE)
"""All of them, in the order of the page."""

Labels = Callable[[Servable], dict[str, str]]


def latency_figures(servables: Iterable[Servable], labels: Labels) -> Iterator[str]:
    """The lines; ``labels`` gives those of a version."""
    measured = [(servable, stats) for servable in servables if (stats := servable.stats.summaries) is not None]
    cached = [(servable, stats) for servable, stats in measured if servable.caching is not None]
    for families, of in ((_SUMMARIES, measured), (_CACHE_SUMMARIES, cached)):
        for family, chosen in families if of else ():
            samples = (
                sample for servable, stats in of for sample in _of_summary(labels(servable), stats, chosen(stats))
            )
            yield render_samples(family, samples)
    timed = [(servable, times) for servable in servables if (times := servable.stats.first_response) is not None]
    if timed:
        samples = (sample for servable, times in timed for sample in histogram_samples(labels(servable), times))
        yield render_samples(_FIRST_RESPONSE, samples)


def _of_summary(labels: dict[str, str], summaries: Summaries, summary: Summary) -> Iterator[Sample]:
    yield "_count", labels, summary.count
    yield "_sum", labels, summary.sum
    values = summary.quantiles(monotonic_ns())
    for (quantile, _), value in zip(summaries.targets, values, strict=True):
        yield "", {**labels, "quantile": f"{quantile:g}"}, value
