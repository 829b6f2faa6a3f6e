"""Quantiles of the last minute: exact while there are few values, and close when there are many."""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right

from hypothesis import given
from hypothesis import strategies as st

from bident.observe.quantiles import Sketch, Summary, Window

TARGETS = ((0.5, 0.05), (0.9, 0.01), (0.99, 0.001))
SECOND = 1_000_000_000


def test_nothing_has_no_quantiles() -> None:
    assert all(math.isnan(value) for value in Window(TARGETS, 0).quantiles(0))


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=200))
def test_few_values_have_exact_quantiles(values: list[int]) -> None:
    window = Window(TARGETS, 0)
    window.add(values, 0)

    ordered = sorted(values)
    expected = [ordered[math.ceil(quantile * len(values)) - 1] for quantile, _ in TARGETS]
    assert window.quantiles(0) == expected


def test_many_values_have_quantiles_within_the_errors() -> None:
    draw = random.Random(3).expovariate
    window = Window(TARGETS, 0)
    values = [draw(1.0) for _ in range(100_000)]
    for start in range(0, len(values), 50):
        window.add(values[start : start + 50], start * 500_000)

    ordered = sorted(values)
    for (quantile, error), value in zip(TARGETS, window.quantiles(100_000 * 500_000), strict=True):
        lowest, highest = bisect_left(ordered, value) / len(values), bisect_right(ordered, value) / len(values)
        assert lowest - error <= quantile <= highest + error


def test_values_that_rise_all_the_time_do_not_shift_the_ranks() -> None:
    window = Window(TARGETS, 0)
    window.add(range(100_000), 0)

    for (quantile, error), value in zip(TARGETS, window.quantiles(0), strict=True):
        assert abs(value / 100_000 - quantile) <= error


def test_a_sketch_keeps_few_values_and_the_weight_of_all() -> None:
    sketch = Sketch(100)
    for number in range(100_000):
        sketch.add([float(number)])

    values, weights = sketch.kept()
    assert len(values) < 1500
    assert weights.sum() == 100_000


def test_what_is_older_than_a_minute_is_forgotten() -> None:
    window = Window(TARGETS, 0)
    window.add([1000], 0)
    window.add([1], 50 * SECOND)

    assert window.quantiles(50 * SECOND)[-1] == 1000
    assert window.quantiles(65 * SECOND)[-1] == 1
    assert math.isnan(window.quantiles(500 * SECOND)[-1])


def test_values_that_come_after_a_long_silence_stand_alone() -> None:
    window = Window(TARGETS, 0)
    window.add([1000], 0)
    window.add([1], 10_000 * SECOND)

    assert window.quantiles(10_000 * SECOND) == [1, 1, 1]


def test_a_summary_counts_on_when_its_window_is_empty() -> None:
    summary = Summary(TARGETS, 0)
    summary.observe([3, 4], 0)

    assert (summary.count, summary.sum) == (2, 7)
    assert math.isnan(summary.quantiles(100 * SECOND)[0])
    assert (summary.count, summary.sum) == (2, 7)
