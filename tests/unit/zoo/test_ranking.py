"""Logits to the best classes."""

from __future__ import annotations

import numpy as np
import pytest

from bident.zoo.models.classify_postprocess.ranking import best, wanted


def test_the_best_classes_of_each_row_and_their_shares():
    logits = np.log(np.array([[1, 6, 3], [8, 1, 1]], np.float32))
    numbers, shares = best(logits + 100, 2)
    assert numbers.tolist() == [[1, 2], [0, 1]]
    np.testing.assert_allclose(shares, [[0.6, 0.3], [0.8, 0.1]], rtol=1e-5)
    assert (numbers.dtype, shares.dtype) == (np.int32, np.float32)


def test_large_logits_do_not_overflow():
    _, shares = best(np.array([[1e4, 0, -1e4]], np.float32), 3)
    assert shares.tolist() == [[1, 0, 0]]


def test_no_more_classes_than_there_are():
    assert wanted({"top_k": "7"}, 5, 1000) == 7
    assert wanted({}, 5, 3) == 3


@pytest.mark.parametrize("count", [0, -1, "many", None, [2]])
def test_impossible_counts(count):
    with pytest.raises(ValueError, match=r"top_k is .*; it takes a whole number from 1"):
        wanted({"top_k": count}, 5, 1000)
