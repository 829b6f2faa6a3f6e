"""Values by size."""

from __future__ import annotations

from bident.observe.histogram import Histogram


def test_a_value_counts_in_the_first_bucket_that_holds_it_and_all_larger_ones() -> None:
    histogram = Histogram((1, 10, 100))
    for value in (0.5, 1, 1.5, 100, 101):
        histogram.observe(value)

    assert histogram.cumulative == [2, 3, 4, 5]
    assert histogram.sum == 204


def test_nothing_is_in_a_new_one() -> None:
    assert Histogram((1,)).cumulative == [0, 0]
