"""The arithmetic behind the statistics."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bident.engine.stats import FailureReason, ModelStats

NOTHING = {"count": 0, "ns": 0}


def test_a_model_that_was_never_asked_has_zeros_everywhere() -> None:
    document = ModelStats().as_dict()

    assert document == {
        "last_inference": 0,
        "inference_count": 0,
        "execution_count": 0,
        "inference_stats": dict.fromkeys(
            (
                "success",
                "fail",
                "queue",
                "compute_input",
                "compute_infer",
                "compute_output",
                "cache_hit",
                "cache_miss",
            ),
            NOTHING,
        ),
        "response_stats": {},
        "batch_stats": [],
        "memory_usage": [],
    }
    assert set(ModelStats().failures) == set(FailureReason)


def test_a_batch_counts_its_time_once_for_each_request_in_it() -> None:
    stats = ModelStats()
    before = time.time_ns() // 1_000_000

    stats.record_batch(2, 5, 300, 1000, 10, 100, 20, executed_rows=5)

    document: Any = stats.as_dict()
    assert (document["inference_count"], document["execution_count"]) == (5, 1)
    assert before <= document["last_inference"] <= time.time_ns() // 1_000_000
    assert document["inference_stats"]["success"] == {"count": 2, "ns": 1000}
    assert document["inference_stats"]["queue"] == {"count": 2, "ns": 300}
    assert document["inference_stats"]["compute_input"] == {"count": 2, "ns": 20}
    assert document["inference_stats"]["compute_infer"] == {"count": 2, "ns": 200}
    assert document["inference_stats"]["compute_output"] == {"count": 2, "ns": 40}
    assert document["inference_stats"]["fail"] == NOTHING
    assert document["batch_stats"] == [
        {
            "batch_size": 5,
            "compute_input": {"count": 1, "ns": 10},
            "compute_infer": {"count": 1, "ns": 100},
            "compute_output": {"count": 1, "ns": 20},
        }
    ]


def test_batch_sizes_are_listed_ascending_with_their_own_times() -> None:
    stats = ModelStats()
    for rows, infer_ns in ((8, 70), (1, 10), (8, 30)):
        stats.record_batch(1, rows, 0, infer_ns, 0, infer_ns, 0, executed_rows=rows)

    listed: Any = stats.as_dict()["batch_stats"]

    assert [(entry["batch_size"], entry["compute_infer"]) for entry in listed] == [
        (1, {"count": 1, "ns": 10}),
        (8, {"count": 2, "ns": 100}),
    ]


def test_a_failure_is_never_a_success_nor_an_inference() -> None:
    stats = ModelStats()

    stats.record_failure(FailureReason.REJECTED, 50)
    stats.record_failure(FailureReason.REJECTED, 5)
    stats.record_failure(FailureReason.BACKEND, 7)

    assert (stats.fail.count, stats.fail.ns) == (3, 62)
    assert (stats.success.count, stats.queue.count, stats.inferences, stats.executions) == (0, 0, 0, 0)
    assert stats.last_inference_ms == 0
    assert {reason.value: count for reason, count in stats.failures.items()} == {
        "REJECTED": 2,
        "CANCELED": 0,
        "BACKEND": 1,
        "OTHER": 0,
    }


batch = st.tuples(*[st.integers(1, 9)] * 2, *[st.integers(0, 10**9)] * 5)


@given(st.lists(batch, max_size=20), st.lists(st.sampled_from(list(FailureReason)), max_size=20))
def test_the_parts_add_up_to_the_whole(batches: list[tuple[int, ...]], failures: list[FailureReason]) -> None:
    stats = ModelStats()
    for recorded in batches:
        stats.record_batch(*recorded, executed_rows=recorded[1])
    for reason in failures:
        stats.record_failure(reason, 3)

    document: Any = stats.as_dict()
    sizes = document["batch_stats"]
    assert sum(entry["compute_infer"]["count"] for entry in sizes) == stats.executions == len(batches)
    assert sum(entry["batch_size"] * entry["compute_infer"]["count"] for entry in sizes) == stats.inferences
    assert [entry["batch_size"] for entry in sizes] == sorted({rows for _, rows, *_ in batches})
    counts = {document["inference_stats"][part]["count"] for part in ("success", "queue", "compute_infer")}
    assert counts == {sum(requests for requests, *_ in batches)}
    assert sum(stats.failures.values()) == stats.fail.count == len(failures)
