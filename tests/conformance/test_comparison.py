"""The comparison itself: what counts as the same, and what does not."""

from __future__ import annotations

from typing import Any

import pytest
from judged_comparison import fragment, mismatches
from known_differences import explained


@pytest.mark.parametrize(
    ("triton", "bident", "places"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["a"]),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": 1}, {"a": "1"}, ["a"]),
        ({"a": 0.9998999834060669}, {"a": 0.9999}, []),
        ({"a": 0.9999}, {"a": 0.9998}, ["a"]),
        ({"a": float("nan")}, {"a": float("nan")}, []),
        ({"a": float("nan")}, {"a": None}, ["a"]),
        ({"a": [1, 2]}, {"a": [1]}, ["a"]),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, ["a.1.b"]),
        ({"a": 1}, {"a": 1, "b": 2}, ["b"]),
        ({"a": 1, "b": 2}, {"a": 1}, ["b"]),
        ({"error": "no 'x' for model 'm'. Do."}, {"error": "no x; do this"}, []),
        ({"error": "no 'x'"}, {"error": "no 'y'"}, ["error"]),
        ({"text": "no"}, {"text": "no, really"}, ["text"]),
    ],
)
def test_mismatches(triton: Any, bident: Any, places: list[str]) -> None:
    assert [found.where for found in mismatches(triton, bident)] == places


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("[request id: <id_unknown>] expected 2 inputs but got 1. Got ['a']", "expected 2 inputs but got 1"),
        ("in ensemble 'e', [request id: 7] told so", "told so"),
        ("unexpected shape. Expected [1], got [2]", "unexpected shape"),
        ("failed to parse the request JSON buffer: Invalid value. at 0", "failed to parse the request JSON buffer"),
        ("plain", "plain"),
    ],
)
def test_fragments(message: str, part: str) -> None:
    assert fragment(message) == part


def test_what_nobody_knows_of_is_not_explained() -> None:
    (found,) = mismatches({"json": {"outputs": [1]}}, {"json": {"outputs": [2]}})
    assert not explained("http json identity: INT32, one", found)
