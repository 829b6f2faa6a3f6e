"""What clients sent, in messages: recognisable, and never long."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bident.wire.shown import listed, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "'a'"), ("", "''"), (1, "1"), (None, "null"), (True, "true"), ([1, "b"], '[1,"b"]'), ({"a": 1}, '{"a":1}')],
)
def test_short_values_are_whole(value: Any, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize("value", ["x" * 50_000_000, [1] * 5_000_000, {str(key): 1 for key in range(200_000)}])
def test_long_values_are_cut_and_cost_nothing(value: Any) -> None:
    start = time.perf_counter()
    text = shown(value)
    assert time.perf_counter() - start < 0.05
    assert len(text) < 120
    assert "..." in text


def test_many_words_are_counted() -> None:
    assert listed(["a", "b"]) == "'a', 'b'"
    assert listed(map(str, range(15))).endswith("'11' and 3 more")


@pytest.mark.parametrize(("inner", "text"), [([], "[...]"), ({}, "{...}")])
def test_what_is_nested_too_deep_to_be_written_is_named_by_its_kind(inner: Any, text: str) -> None:
    value = inner
    for _ in range(500):
        value = [value] if isinstance(inner, list) else {"a": value}
    assert shown(value) == text
