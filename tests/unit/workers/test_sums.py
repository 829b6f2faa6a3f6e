"""Figures of several workers added up."""

from __future__ import annotations

import copy

from bident.engine.stats import BatchSizeStats, FailureReason, ModelStats
from bident.workers import sums

PAGE = """\
# HELP nv_inference_count Rows
# TYPE nv_inference_count counter
nv_inference_count{model="a",version="1"} 3
nv_inference_count{model="b } 7",version="1"} 1
# HELP nv_inference_pending_request_count Waiting
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="a",version="1"} 2
# HELP nv_cpu_utilization Load
# TYPE nv_cpu_utilization gauge
nv_cpu_utilization 0.25
"""
OTHER = """\
# HELP nv_inference_count Rows
# TYPE nv_inference_count counter
nv_inference_count{model="a",version="1"} 4
# HELP nv_cpu_utilization Load
# TYPE nv_cpu_utilization gauge
nv_cpu_utilization 0.5
# HELP tokens Made by a model
# TYPE tokens gauge
tokens 1.5
# HELP wait Seconds
# TYPE wait summary
wait{quantile="0.5"} 9
wait_sum 20
wait_count 2
"""


def test_one_page_is_itself() -> None:
    assert sums.add_pages([PAGE]) == PAGE
    assert sums.add_pages([]) == ""


def test_pages_become_the_page_of_one_server() -> None:
    page = sums.add_pages([PAGE, OTHER, OTHER])
    lines = page.splitlines()
    assert 'nv_inference_count{model="a",version="1"} 11' in lines
    assert 'nv_inference_count{model="b } 7",version="1"} 1' in lines
    assert 'nv_inference_pending_request_count{model="a",version="1"} 2' in lines
    assert "nv_cpu_utilization 0.5" in lines  # the machine's, which every worker sees
    assert "tokens 3.0" in lines
    assert 'wait{quantile="0.5"} 9' in lines
    assert "wait_sum 40" in lines
    assert sum(line.startswith("# TYPE") for line in lines) == 5
    assert len(lines) == len(set(lines))


def test_infinite_values_survive() -> None:
    page = '# HELP h H\n# TYPE h histogram\nh_bucket{le="+Inf"} 2\n# HELP g G\n# TYPE g gauge\ng inf\n'
    assert 'h_bucket{le="+Inf"} 4' in sums.add_pages([page, page])
    assert "g inf" in sums.add_pages([page, page])


def test_what_an_ended_worker_has_counted_counts_and_what_it_measured_does_not() -> None:
    kept = sums.cumulative(PAGE + OTHER)
    assert 'nv_inference_count{model="a",version="1"} 7' in kept
    assert "wait_count 2" in kept
    assert "gauge" not in kept


def stats(number: int) -> ModelStats:
    made = ModelStats(inferences=number, last_inference_ms=number, load_seconds=number)
    made.success.add(number, 10 * number)
    made.failures[FailureReason.OTHER] = number
    made.batches = {1: BatchSizeStats(number, 1, 2, 3), number: BatchSizeStats(1)}
    return made


def test_figures_are_added_by_field_and_neither_is_changed() -> None:
    first, second = stats(2), stats(5)
    before = copy.deepcopy(first)
    both = sums.added(first, second)
    assert (both.inferences, both.last_inference_ms, both.load_seconds) == (7, 5, 5)
    assert (both.success.count, both.success.ns) == (7, 70)
    assert both.failures[FailureReason.OTHER] == 7
    assert both.batches[1] == BatchSizeStats(7, 2, 4, 6)
    assert both.batches[2] == BatchSizeStats(1)
    assert first == before
    assert both.as_dict()["inference_count"] == 7
