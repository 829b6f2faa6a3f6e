"""What makes arrays of children trees: checked before any C++ follows them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.errors import ConfigError


def walk_trees(
    offsets: NDArray[np.int64], left: NDArray[Any], right: NDArray[Any], feature: NDArray[Any], features: int
) -> NDArray[np.int64]:
    """The nodes that can be reached, tree by tree, each tree level by level, siblings together.

    Tree ``t`` owns the nodes ``offsets[t]:offsets[t + 1]``, whose children are numbered from its first,
    the root; a leaf's are -1. Nodes that nothing leads to are no error: pruning leaves them behind.
    Raises ConfigError where a child or a feature does not exist, or a node is reached in two ways.
    """
    sizes = np.diff(offsets)
    start = np.repeat(offsets[:-1], sizes)
    inner = left >= 0
    children = np.stack([left, right], axis=1)
    if ((right >= 0) != inner).any() or (children < -1).any() or (children >= np.repeat(sizes, sizes)[:, None]).any():
        raise ConfigError("is damaged: a node's child does not exist")
    tested = feature[inner]
    if len(tested) and not 0 <= tested.min() <= tested.max() < features:
        raise ConfigError(f"is damaged: a node tests feature {tested.max()}, but rows have {features} features")
    seen = np.zeros(len(left), np.bool_)
    levels = [offsets[:-1]]
    while len(levels[-1]):
        level = levels[-1]
        twice = np.diff(np.sort(level)) == 0
        if seen[level].any() or twice.any():
            raise ConfigError("is damaged: a node is reached in two ways")
        seen[level] = True
        parents = level[inner[level]]
        levels.append((children[parents] + start[parents, None]).reshape(-1))
    reached = np.concatenate(levels)
    tree = np.repeat(np.arange(len(sizes)), sizes)[reached]
    return reached[np.argsort(tree, kind="stable")]
