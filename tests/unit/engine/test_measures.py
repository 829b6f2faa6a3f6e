"""What is measured beside counts, as ``--metrics-config`` and a model's config say."""

from __future__ import annotations

import pytest

from bident.engine.measures import FIRST_RESPONSE, Measures
from bident.errors import SettingsError
from tests.unit.engine.engine_fakes import BATCHING, model_config

DECOUPLED = "model_transaction_policy { decoupled: true }"


def buckets(*bounds: float) -> str:
    own = " ".join(f"buckets: {bound}" for bound in bounds)
    family = f'metric_identifier {{ family: "{FIRST_RESPONSE}" }}'
    return f"model_metrics {{ metric_control {{ {family} histogram_options {{ {own} }} }} }}"


def test_by_default_there_are_counters_only() -> None:
    measures = Measures.parse({})

    assert measures == Measures(counters=True, histograms=False, quantiles=())
    stats = measures.stats(model_config(DECOUPLED), None)
    assert (stats.summaries, stats.first_response) == (None, None)


def test_tritons_words() -> None:
    measures = Measures.parse(
        {
            "counter_latencies": "false",
            "summary_latencies": "TRUE",
            "histogram_latencies": "1",
            "summary_quantiles": "0.5:0.1",
        }
    )

    assert measures == Measures(counters=False, histograms=True, quantiles=((0.5, 0.1),))
    assert [quantile for quantile, _ in Measures.parse({"summary_latencies": "on"}).quantiles] == [
        0.5,
        0.9,
        0.95,
        0.99,
        0.999,
    ]


@pytest.mark.parametrize(
    ("name", "value", "fragment"),
    [
        ("summary_latency", "true", "there is no 'summary_latency'; did you mean 'summary_latencies'?"),
        ("summary_latencies", "maybe", "summary_latencies=maybe: it is true or false"),
        ("summary_quantiles", "0.5", "expected <quantile>:<error> pairs"),
        ("summary_quantiles", "0.5:x", "expected <quantile>:<error> pairs"),
        ("summary_quantiles", "1:0.1", "between 0 and 1"),
        ("summary_quantiles", "0.9:0.1,0.5:0.1", "rising"),
        ("summary_quantiles", "0.5:0", "errors from 0.0001"),
        ("summary_quantiles", "0.5:nan", "errors from 0.0001"),
        ("summary_quantiles", "", "expected <quantile>:<error> pairs"),
    ],
)
def test_what_cannot_be_is_said_at_the_start(name: str, value: str, fragment: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Measures.parse({name: value})

    assert fragment in refused.value.message


def test_only_decoupled_models_have_a_first_response() -> None:
    measures = Measures(histograms=True)

    assert measures.stats(model_config(BATCHING), None).first_response is None
    first = measures.stats(model_config(DECOUPLED), None).first_response
    assert first is not None
    assert first.bounds == (100, 500, 2000, 5000)


def test_a_model_may_have_buckets_of_its_own() -> None:
    stats = Measures(histograms=True).stats(model_config(DECOUPLED + buckets(-1, 0, 1, 2.5)), None)

    assert stats.first_response is not None
    assert stats.first_response.bounds == (-1, 0, 1, 2.5)


def test_the_figures_of_a_reloaded_model_go_on() -> None:
    measures = Measures(histograms=True, quantiles=((0.5, 0.1),))
    stats = measures.stats(model_config(DECOUPLED), None)
    stats.executions = 3
    kept = stats.summaries, stats.first_response

    assert measures.stats(model_config(DECOUPLED), stats) is stats
    assert (stats.executions, (stats.summaries, stats.first_response)) == (3, kept)
    assert measures.stats(model_config(DECOUPLED + buckets(7)), stats).first_response is not kept[1]
    assert measures.stats(model_config(BATCHING), stats).first_response is None
