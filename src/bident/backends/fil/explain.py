"""``treeshap_output``: how much each feature contributed to each row's raw score, exactly.

The value of a leaf is a product game: with ``S`` the known features, the leaf counts with
``prod(o_j for j in S) * prod(z_j for j not in S)``, where ``o_j`` is 1 if the row satisfies all
conditions on feature ``j`` along the leaf's path (else 0), and ``z_j`` the share of the training data
that does. The Shapley value of such a game has a closed form (Owen's multilinear extension):

    phi_i = value * (o_i - z_i) * integral over t in [0, 1] of prod(t * o_j + (1 - t) * z_j for j != i)

The integrand is a polynomial, so that Gauss-Legendre quadrature computes the integral exactly; all
leaves of all trees, and all rows, are computed at once.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.backends.fil.forest import Forest

_CHUNK_ELEMENTS = 4_000_000
"""Bounds the temporary arrays of one step: 32 MB."""


class _Paths:
    """The leaves whose paths test the same number of different features, as rectangular arrays.

    ``share`` [leaves, depth] is z of each feature on the path; ``conditions`` [leaves, depth, most] are
    nodes, with ``wanted`` the way each must go (``used`` False pads features with fewer conditions).
    """

    def __init__(self, paths: list[list[tuple[int, float, list[tuple[int, bool]]]]], leaves: list[int]) -> None:
        self.leaves = np.array(leaves)
        self.feature = np.array([[feature for feature, _, _ in path] for path in paths])
        self.share = np.array([[share for _, share, _ in path] for path in paths])
        most = max(len(conditions) for path in paths for _, _, conditions in path)
        shape = (*self.feature.shape, most)
        self.conditions = np.zeros(shape, np.int64)
        self.wanted = np.zeros(shape, np.bool_)
        self.used = np.zeros(shape, np.bool_)
        for leaf, path in enumerate(paths):
            for place, (_, _, conditions) in enumerate(path):
                for which, (node, way) in enumerate(conditions):
                    self.conditions[leaf, place, which], self.wanted[leaf, place, which] = node, way
                    self.used[leaf, place, which] = True


class Contributions:
    """Shapley values of a forest that is plain and knows its cover."""

    def __init__(self, forest: Forest) -> None:
        assert forest.cover is not None
        self._forest = forest
        self._groups: list[_Paths] = []
        self._bias = forest.base_scores.copy()
        by_depth: dict[int, tuple[list[Any], list[int]]] = defaultdict(lambda: ([], []))
        for tree in range(forest.trees):
            for leaf, path in _paths(forest, int(forest.offsets[tree])):
                share = float(np.prod([share for _, share, _ in path]))
                self._bias += share * self._votes(np.array([leaf]))[0]
                if path:
                    paths, leaves = by_depth[len(path)]
                    paths.append(path)
                    leaves.append(leaf)
        self._groups = [_Paths(*group) for group in by_depth.values()]

    def of(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Contributions [N, classes, features + 1] of ``rows`` [N, features]; the last column is the bias."""
        forest = self._forest
        result = np.zeros((len(rows), forest.features + 1, forest.classes))
        result[:, -1, :] = self._bias
        step = max(1, _CHUNK_ELEMENTS // max(1, len(forest.left)))
        for start in range(0, len(rows), step):
            self._add_rows(result[start : start + step], rows[start : start + step])
        contributions: NDArray[np.float64] = result.transpose(0, 2, 1)
        return contributions

    def _add_rows(self, result: NDArray[np.float64], rows: NDArray[np.float32]) -> None:
        forest = self._forest
        inner = np.flatnonzero(~forest.leaf)
        goes_left = np.zeros((len(rows), len(forest.left)), np.bool_)
        values = rows[:, forest.feature[inner]]
        goes_left[:, inner] = np.where(np.isnan(values), forest.default_left[inner], values < forest.threshold[inner])
        for paths in self._groups:
            step = max(1, _CHUNK_ELEMENTS // (len(rows) * paths.used[0].size))
            for start in range(0, len(paths.leaves), step):
                self._add(result, goes_left, paths, slice(start, start + step))

    def _add(self, result: NDArray[Any], goes_left: NDArray[np.bool_], paths: _Paths, part: slice) -> None:
        leaves, share, feature = paths.leaves[part], paths.share[part], paths.feature[part]
        met = goes_left[:, paths.conditions[part]] == paths.wanted[part]
        ones = (met | ~paths.used[part]).all(axis=3).astype(np.float64)  # [N, leaves, depth]
        depth = share.shape[1]
        nodes, weights = _quadrature((depth + 1) // 2)
        integral = np.zeros_like(ones)
        for t, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            integral += weight * _products_of_others(t * ones + (1 - t) * share)
        phi = (ones - share) * integral
        votes = self._votes(leaves)  # [leaves, classes]
        added = phi[..., None] * votes[:, None, :]
        row = np.arange(len(result))[:, None, None]
        np.add.at(result, (row, feature[None]), added)

    def _votes(self, leaves: NDArray[Any]) -> NDArray[np.float64]:
        """What each leaf adds to each class, [leaves, classes]."""
        forest = self._forest
        values: NDArray[np.float64] = forest.values[leaves]
        if values.shape[1] == forest.classes:
            return values
        votes = np.zeros((len(leaves), forest.classes))
        tree = np.searchsorted(forest.offsets, leaves, side="right") - 1
        votes[np.arange(len(leaves)), forest.tree_class[tree]] = values[:, 0]
        return votes


@lru_cache(maxsize=32)
def _quadrature(points: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(points)
    return nodes, weights


def _paths(forest: Forest, root: int) -> list[tuple[int, list[tuple[int, float, list[tuple[int, bool]]]]]]:
    """Every leaf below ``root`` with its path: per feature its share and its conditions (node, left?)."""
    assert forest.cover is not None
    cover = forest.cover
    found = []
    waiting: list[tuple[int, dict[int, tuple[float, list[tuple[int, bool]]]]]] = [(root, {})]
    while waiting:
        node, path = waiting.pop()
        if forest.left[node] < 0:
            found.append((node, [(feature, *entry) for feature, entry in path.items()]))
            continue
        feature = int(forest.feature[node])
        share, conditions = path.get(feature, (1.0, []))
        left = root + int(forest.left[node])
        for below, is_left in ((left, True), (left + 1, False)):
            passed = float(cover[below] / cover[node]) if cover[node] else 0.0
            waiting.append((below, path | {feature: (share * passed, [*conditions, (node, is_left)])}))
    return found


def _products_of_others(factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each element along the last axis, the product of all the others (no division: some are 0)."""
    before = np.ones_like(factors)
    after = np.ones_like(factors)
    np.cumprod(factors[..., :-1], axis=-1, out=before[..., 1:])
    after[..., :-1] = np.cumprod(factors[..., :0:-1], axis=-1)[..., ::-1]
    others: NDArray[np.float64] = before * after
    return others
