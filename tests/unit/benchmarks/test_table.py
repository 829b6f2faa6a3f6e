"""The verdicts and the text of the benchmark table."""

import pytest

from benchmarks.table import Bar, compared, figure, markdown, measured


@pytest.mark.parametrize(
    ("bar", "value", "admitted"),
    [
        (Bar(at_least=0.6), 0.6, True),
        (Bar(at_least=0.6), 0.599, False),
        (Bar(at_most=1.3), 1.3, True),
        (Bar(at_most=1.3), 1.301, False),
        (Bar(0.98, 1.02), 0.97, False),
        (Bar(0.98, 1.02), 1.0, True),
        (Bar(0.98, 1.02), 1.03, False),
    ],
)
def test_bar_admits_its_edges_and_nothing_beyond(bar, value, admitted):
    assert bar.admits(value) is admitted


def test_ratio_is_the_median_of_each_rounds_own_ratio():
    # A slow spell in the second round halves both: the ratio of each round is still 2.
    row = compared("throughput", "req/s", Bar(at_least=2), [200, 100, 220], "peer", [100, 50, 110])
    assert row.ratio == 2
    assert (row.ours, row.peer) == (200, 100)
    assert row.passed


def test_without_a_peer_the_bar_is_on_the_figure():
    assert measured("start", "s", Bar(at_most=1.5), [1.4, 9.0, 1.2]).passed
    assert not measured("start", "s", Bar(at_most=1.5), [1.6]).passed


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (41781.2, "41,800"), (999.6, "1,000"), (107.4, "107"), (3.3512, "3.35"), (0.01214, "0.0121")],
)
def test_figures_keep_three_digits(value, text):
    assert figure(value) == text


def test_markdown_names_the_miss():
    rows = [
        compared("throughput", "req/s", Bar(at_least=3), [41781], "Triton", [9474]),
        measured("start", "s", Bar(at_most=1.5), [2.0]),
    ]
    assert markdown(rows).splitlines() == [
        "| what | ours | peer | ratio | bar | verdict |",
        "| --- | ---: | ---: | ---: | --- | --- |",
        "| throughput | 41,800 req/s | Triton 9,470 req/s | 4.41 | ≥ 3 | pass |",
        "| start | 2 s |  |  | ≤ 1.5 s | MISSED |",
    ]
