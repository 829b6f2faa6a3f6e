"""Near misses are looked for only where that is quick."""

from __future__ import annotations

from bident.model.hints import closest, did_you_mean


def test_a_close_word_is_found_whatever_its_case() -> None:
    assert closest("Input0", ["OUTPUT", "INPUT0", "INPUT1"]) == "INPUT0"
    assert closest("z", ["INPUT0"]) is None


def test_nothing_is_close_to_a_word_that_is_very_long() -> None:
    assert closest("a" * 256, ["a" * 255]) == "a" * 255
    assert closest("a" * 257, ["a" * 256]) is None


def test_nothing_is_close_among_very_many() -> None:
    words = [f"w{number}" for number in range(1000)]
    assert closest("W7", words) == "w7"
    assert closest("W7", [*words, "more"]) is None
    assert did_you_mean("W7", [*words, "more"]).endswith("and 989 more")
