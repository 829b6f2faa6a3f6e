"""What is measured of every model beside its counts: ``--metrics-config``, in Triton's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from bident.engine.stats import ModelStats
from bident.engine.summaries import Summaries, Targets
from bident.errors import SettingsError
from bident.model.config import ModelConfig
from bident.model.hints import did_you_mean
from bident.observe.histogram import Histogram
from bident.settings.values import TRUTH

FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"
_BUCKETS = (100.0, 500.0, 2000.0, 5000.0)
_QUANTILES = "0.5:0.05,0.9:0.01,0.95:0.001,0.99:0.001,0.999:0.001"
_SMALLEST_ERROR = 0.0001


@dataclass(frozen=True)
class Measures:
    """``counters``: sums of times; ``histograms``: times in buckets; ``quantiles``: those of summaries, if wanted."""

    counters: bool = True
    histograms: bool = False
    quantiles: Targets = ()

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Measures:
        """What ``--metrics-config`` says. Raises SettingsError."""
        known = ("counter_latencies", "summary_latencies", "histogram_latencies", "summary_quantiles")
        for name in given:
            if name not in known:
                raise SettingsError(f"--metrics-config: there is no '{name}'; {did_you_mean(name, known)}")
        quantiles = _quantiles(given.get("summary_quantiles", _QUANTILES))
        return cls(
            counters=_is_on(given, "counter_latencies", default=True),
            histograms=_is_on(given, "histogram_latencies", default=False),
            quantiles=quantiles if _is_on(given, "summary_latencies", default=False) else (),
        )

    def stats(self, config: ModelConfig, before: ModelStats | None) -> ModelStats:
        """The figures of a version that is being loaded; of one that replaces another they go on."""
        stats = before or ModelStats()
        if self.quantiles and stats.summaries is None:
            stats.summaries = Summaries(self.quantiles)
        bounds = _bounds(config)
        if not self.histograms or not config.decoupled:
            stats.first_response = None
        elif stats.first_response is None or stats.first_response.bounds != bounds:
            stats.first_response = Histogram(bounds)
        return stats


def _bounds(config: ModelConfig) -> tuple[float, ...]:
    """The buckets of a model's times to its first response: its own, or Triton's."""
    for control in config.proto.model_metrics.metric_control:
        if control.metric_identifier.family == FIRST_RESPONSE and control.histogram_options.buckets:
            return tuple(control.histogram_options.buckets)
    return _BUCKETS


def _is_on(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name)
    if text is None:
        return default
    if text.lower() not in TRUTH:
        raise SettingsError(f"--metrics-config {name}={text}: it is true or false")
    return TRUTH[text.lower()]


def _quantiles(text: str) -> Targets:
    """``0.5:0.05,0.9:0.01``: quantiles that rise, and the error each may have."""
    wrong = SettingsError(
        f"--metrics-config summary_quantiles={text}: expected <quantile>:<error> pairs with a comma between, quantiles "
        f"rising between 0 and 1, errors from {_SMALLEST_ERROR} to below 1, as in {_QUANTILES}"
    )
    try:
        pairs = [pair.split(":") for pair in text.strip('"').split(",")]
        found = tuple((float(quantile), float(error)) for quantile, error in pairs)
    except ValueError:
        raise wrong from None
    rising = all(one[0] < other[0] for one, other in pairwise(found))
    if not rising or not all(0 < quantile < 1 and _SMALLEST_ERROR <= error < 1 for quantile, error in found):
        raise wrong
    return found
