"""What makes arrays of children trees: checked before any C++ follows them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.errors import ConfigError


def check_trees(
    offsets: NDArray[np.int64], left: NDArray[Any], right: NDArray[Any], feature: NDArray[Any], features: int
) -> None:
    """Every node has both children or none, in its own tree; each is reached once; features exist.

    Tree ``t`` owns the nodes ``offsets[t]:offsets[t + 1]``, whose children are numbered from its first,
    the root; a leaf's are -1. Raises ConfigError.
    """
    sizes = np.repeat(np.diff(offsets), np.diff(offsets))
    start = np.repeat(offsets[:-1], np.diff(offsets))
    inner = left >= 0
    children = np.stack([left, right])
    if ((right >= 0) != inner).any() or (children < -1).any() or (children >= sizes).any():
        raise ConfigError("is damaged: a node's child does not exist")
    tested = feature[inner]
    if len(tested) and not 0 <= tested.min() <= tested.max() < features:
        raise ConfigError(f"is damaged: a node tests feature {tested.max()}, but rows have {features} features")
    seen = np.zeros(len(left), np.bool_)
    level = offsets[:-1]
    while len(level):
        twice = np.diff(np.sort(level)) == 0
        if seen[level].any() or twice.any():
            raise ConfigError("is damaged: a node is reached in two ways")
        seen[level] = True
        parents = level[inner[level]]
        level = np.concatenate([left[parents] + start[parents], right[parents] + start[parents]])
    if not seen.all():
        raise ConfigError("is damaged: a node is reached from nowhere")
