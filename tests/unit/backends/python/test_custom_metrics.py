"""What models may measure themselves: within limits, under names that stand for one thing, as text that can be read."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bident.backends.python import metrics
from bident.backends.python.messages import MetricCall, MetricChange
from bident.backends.python.metric_checks import BUCKET_LIMIT, LABEL_LIMIT, TEXT_LIMIT
from bident.backends.python.metrics import CustomMetrics

COUNTER, GAUGE, HISTOGRAM = range(3)


class Model:
    """A model that makes metrics."""

    def __init__(self, kept: CustomMetrics | None = None) -> None:
        self.metrics = kept or CustomMetrics()
        self.held = self.metrics.worker()

    def ask(self, what: str, **details: Any) -> dict[str, Any]:
        return self.held.answer(MetricCall(1, what, details))

    def family(self, name: str = "m", kind: int = GAUGE, description: str = "") -> int:
        return int(self.ask("metric_family", name=name, description=description, kind=kind)["id"])

    def refused_family(self, name: str, kind: int = GAUGE, description: str = "") -> str:
        return str(self.ask("metric_family", name=name, description=description, kind=kind)["error"])

    def metric(self, family: int, labels: dict[str, str] | None = None, buckets: list[float] | None = None) -> int:
        return int(self.ask("metric", family=family, labels=labels or {}, buckets=buckets)["id"])

    def refused_metric(self, family: int, labels: dict[str, str] | None = None, buckets: Any = None) -> str:
        return str(self.ask("metric", family=family, labels=labels or {}, buckets=buckets)["error"])

    def change(self, number: int, do: str, value: float = 0.0) -> None:
        self.held.apply(MetricChange(number, do, value))

    def page(self) -> list[str]:
        return list(self.metrics.lines())


def test_the_number_of_families_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FAMILY_LIMIT", 2)
    model = Model()
    first = model.family("a")
    model.family("b")
    assert model.refused_family("c") == "there are 2 metric families already: tell them apart by labels"
    model.family("b")
    model.change(first, "delete_family")
    model.family("c")


def test_the_number_of_series_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "SERIES_LIMIT", 2)
    model = Model()
    families = [model.family("a"), model.family("b")]
    first = model.metric(families[0])
    model.metric(families[1])
    assert "there are 2 metrics already" in model.refused_metric(families[1], {"x": "1"})
    model.metric(families[1])
    model.change(first, "delete")
    model.metric(families[1], {"x": "1"})


def test_what_is_held_is_limited_over_all_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "HANDLE_LIMIT", 4)
    model = Model()
    other = Model(model.metrics)
    family = model.family()
    for _ in range(3):
        model.metric(family)
    refusal = "models hold 4 metrics already: make each once, and keep it"
    assert model.refused_metric(family) == refusal
    assert other.refused_family("x") == refusal
    model.held.close()
    for _ in range(4):
        other.family("x")


def test_the_page_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PAGE_LIMIT", 100_000)
    model = Model()
    family = model.family("h", HISTOGRAM)
    made = [model.metric(family, {"x": str(number)}, [float(bound) for bound in range(100)]) for number in range(20)]
    assert "more than 100000 bytes" in model.refused_metric(family, {"x": "y" * 1000}, list(range(100)))
    assert sum(map(len, model.page())) < 100_000
    for number in made:
        model.change(number, "delete")
    model.metric(family, {"x": "y" * 800}, [float(bound) for bound in range(100)])


def test_names_texts_labels_and_buckets_are_limited() -> None:
    model = Model()
    longest = "a" * TEXT_LIMIT
    gauge = model.family(longest, description=longest)
    histogram = model.family("h", HISTOGRAM)
    model.metric(gauge, {longest: longest, **{f"l{number}": "" for number in range(LABEL_LIMIT - 1)}})
    model.metric(histogram, {}, [float(bound) for bound in range(BUCKET_LIMIT)])

    assert "the name of a metric family is too long: 1025 bytes, at most 1024" in model.refused_family(longest + "a")
    assert "the description of metric family 'm' is too long" in model.refused_family("m", GAUGE, "ä" * 513)
    assert "the name of a label is too long" in model.refused_metric(gauge, {longest + "a": ""})
    assert "the value of label 'x' is too long" in model.refused_metric(gauge, {"x": longest + "a"})
    assert "65 labels are too many" in model.refused_metric(gauge, {f"l{number}": "" for number in range(65)})
    assert "1001 buckets are too many" in model.refused_metric(histogram, {"x": ""}, list(range(1001)))


@pytest.mark.parametrize("buckets", [["x"], [None], [10**400], 3])
def test_buckets_are_numbers(buckets: Any) -> None:
    model = Model()
    assert model.refused_metric(model.family("h", HISTOGRAM), {}, buckets) == "buckets must be numbers"


def test_half_of_a_surrogate_pair_becomes_a_question_mark() -> None:
    model = Model()
    family = model.family("m", description="a\ud800b")
    model.metric(family, {"x": "\udfffé"})
    assert model.page() == ["# HELP m a?b", "# TYPE m gauge", 'm{x="?é"} 0']
    assert "'?'" in model.refused_family("\ud800")


@pytest.mark.parametrize("suffix", ["_bucket", "_sum", "_count"])
def test_no_name_stands_for_a_family_and_a_part_of_a_histogram(suffix: str) -> None:
    model = Model()
    histogram = model.family("hh", HISTOGRAM)
    model.family("hh" + suffix + "s")
    model.family("g")
    model.family("g" + suffix)
    assert model.refused_family("hh" + suffix) == f"'hh{suffix}' is part of histogram 'hh': choose another name"
    model.change(histogram, "delete_family")
    model.family("hh" + suffix)
    assert f"histogram 'hh' needs 'hh{suffix}'" in model.refused_family("hh", HISTOGRAM)


def test_what_is_no_number_is_below_no_bound() -> None:
    model = Model()
    number = model.metric(model.family("h", HISTOGRAM), {}, [1.0, 2.0])
    for value in (0.5, math.nan, math.inf):
        model.change(number, "observe", value)
    assert model.page()[2:] == [
        'h_bucket{le="1"} 1',
        'h_bucket{le="2"} 1',
        'h_bucket{le="+Inf"} 3',
        "h_sum NaN",
        "h_count 3",
    ]


def test_a_last_bound_that_is_infinite_is_the_one_that_every_histogram_has() -> None:
    model = Model()
    model.metric(model.family("h", HISTOGRAM), {}, [1.0, math.inf])
    assert [line for line in model.page() if "le=" in line] == ['h_bucket{le="1"} 0', 'h_bucket{le="+Inf"} 0']


def test_metrics_may_change_while_the_page_is_written() -> None:
    model = Model()
    family = model.family()
    numbers = [model.metric(family, {"x": str(number)}) for number in range(3)]
    lines = model.metrics.lines()
    written = [next(lines), next(lines), next(lines)]
    for number in numbers[:2]:
        model.change(number, "delete")
    model.metric(family, {"x": "new"})
    model.family("other")
    assert written[2] == 'm{x="0"} 0'
    assert 'm{x="2"} 0' in list(lines)
