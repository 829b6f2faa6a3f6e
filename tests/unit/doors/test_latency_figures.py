"""Quantiles and histograms on the metrics page."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bident.engine.measures import Measures
from tests.unit.doors.test_metrics_page import Page, Site
from tests.unit.engine.engine_fakes import BATCHING, ask, on_loop, write_model

SUMMARIES = tuple(
    f"nv_inference_{part}_summary_us"
    for part in ("request", "queue", "compute_input", "compute_infer", "compute_output")
)
DURATIONS = tuple(
    f"nv_inference_{part}_duration_us"
    for part in ("request", "queue", "compute_input", "compute_infer", "compute_output")
)
HISTOGRAM = "nv_inference_first_response_histogram_ms"


async def page_of(root: Path, measures: Measures, *, times: int = 0, more: str = "") -> Page:
    """The page of a server with the model ``m``, asked so many times."""
    site = Site(root)
    site.engine.lifecycle.measures = measures
    write_model(site.models, "m", BATCHING + more)
    assert await site.engine.start(None) == {}
    for _ in range(times):
        await site.infer(ask(1))
    return site.page()


@on_loop
async def test_summaries_count_with_the_counters(tmp_path: Path) -> None:
    page = await page_of(tmp_path, Measures(quantiles=((0.5, 0.05), (0.999, 0.001))), times=3)

    for name in SUMMARIES:
        assert page.kinds[name] == "summary"
        assert page.value(f"{name}_count", model="m") == 3
        total = page.value(f"{name}_sum", model="m")
        assert (
            0 <= page.value(name, model="m", quantile="0.5") <= page.value(name, model="m", quantile="0.999") <= total
        )
    assert page.value(f"{SUMMARIES[0]}_sum", model="m") > 0
    assert not any(name.startswith("nv_cache") for name in page.kinds)


@on_loop
async def test_a_summary_without_values_is_not_a_number(tmp_path: Path) -> None:
    page = await page_of(tmp_path, Measures(quantiles=((0.5, 0.05),)))

    assert page.value(f"{SUMMARIES[0]}_count", model="m") == 0
    assert math.isnan(page.value(SUMMARIES[0], model="m", quantile="0.5"))


@on_loop
async def test_a_histogram_has_its_buckets(tmp_path: Path) -> None:
    more = "model_transaction_policy { decoupled: true }"
    page = await page_of(tmp_path, Measures(histograms=True), more=more)

    assert page.kinds[HISTOGRAM] == "histogram"
    bounds = [labels["le"] for labels in page.labels(f"{HISTOGRAM}_bucket")]
    assert bounds == ["100", "500", "2000", "5000", "+Inf"]
    assert page.value(f"{HISTOGRAM}_count", model="m") == 0


@pytest.mark.parametrize("counters", [True, False])
@on_loop
async def test_sums_of_times_can_be_left_out(tmp_path: Path, counters: bool) -> None:
    page = await page_of(tmp_path, Measures(counters=counters), times=1)

    assert set(DURATIONS) & set(page.kinds) == (set(DURATIONS) if counters else set())
    assert page.value("nv_inference_request_success", model="m") == 1
    assert HISTOGRAM not in page.kinds
    assert not set(SUMMARIES) & set(page.kinds)
