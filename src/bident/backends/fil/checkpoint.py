"""Checks the structure of a treelite checkpoint before treelite's C++ reads it.

A checkpoint is a dump of memory: treelite trusts its lengths and offsets, so that one damaged byte can
crash or hang the process. Walking the file here takes a millisecond per thousand trees.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.backends.fil.structure import walk_trees
from bident.errors import ConfigError

_MAJOR = 4
_ELEMENT = {2: "<f4", 3: "<f8"}
_TEXT = "<u1"


def check_checkpoint(data: bytes) -> None:
    """Raises ConfigError unless ``data`` is one whole checkpoint of treelite 4, consistent in itself."""
    walk = _Walk(data)
    major, minor, patch, threshold, leaf, trees = walk.record("<iiiBBQ")
    if major != _MAJOR:
        raise ConfigError(
            f"was written by treelite {major}.{minor}.{patch}, whose checkpoints differ from treelite {_MAJOR}'s"
        )
    if threshold != leaf or threshold not in _ELEMENT:
        raise ConfigError("is damaged: thresholds and leaves must both be float32 or float64")
    features, task, average, targets = walk.record("<iBBi")
    classes, shape = walk.array("<i4"), walk.array("<i4")
    tree_target, tree_class = walk.array("<i4"), walk.array("<i4")
    walk.array(_TEXT)
    walk.record("<ff")
    scores = walk.array("<f8")
    walk.array(_TEXT)
    walk.no_extensions(1)
    consistent = (
        features >= 0
        and task <= 4
        and average <= 1
        and 1 <= targets == len(classes)
        and len(shape) == 2
        and 1 <= classes.min(initial=1) <= classes.max(initial=1) <= len(scores)
        and len(tree_target) == len(tree_class) == trees
        and shape.tolist() in ([1, 1], [1, classes.max(initial=1)], [targets, 1], [targets, classes.max(initial=1)])
    )
    vectors = len(shape) == 2 and bool(shape[1] > 1)
    votes = (tree_class == -1) if vectors else (tree_class >= 0) & (tree_class < classes.max(initial=1))
    consistent = consistent and bool(votes.all() and (tree_target >= -1).all() and (tree_target < targets).all())
    if not consistent:
        raise ConfigError("is damaged: its header contradicts itself")
    for index in range(trees):
        _check_tree(walk, index, _ELEMENT[threshold], int(shape.prod()), features)
    walk.end()


def _check_tree(walk: _Walk, index: int, element: str, leaf_width: int, features: int) -> None:
    nodes, _ = walk.record("<iB")
    # Kind, left and right child, feature, default way, leaf value, threshold, comparison, category side.
    kinds = ("<i1", "<i4", "<i4", "<i4", "<u1", element, element, "<i1", "<u1")
    per_node = [walk.array(kind) for kind in kinds]
    leaf_values, leaf_begin, leaf_end = walk.array(element), walk.array("<u8"), walk.array("<u8")
    categories, category_begin, category_end = walk.array("<u4"), walk.array("<u8"), walk.array("<u8")
    statistics = [walk.array(kind) for kind in ("<u8", "<u1", "<f8", "<u1", "<f8", "<u1")]
    walk.no_extensions(2)
    lengths = [len(array) for array in (*per_node, leaf_begin, leaf_end, category_begin, category_end)]
    if nodes < 1 or any(length != nodes for length in lengths):
        raise ConfigError(f"is damaged: tree {index} declares {nodes} nodes and holds {lengths}")
    if any(len(array) not in (0, nodes) for array in statistics):
        raise ConfigError(f"is damaged: tree {index} has statistics for other nodes than its own")
    _, left, right, feature, *_ = per_node
    walk_trees(np.array([0, nodes]), left, right, feature, features)
    vectors, is_leaf = leaf_end - leaf_begin, left < 0
    if not (
        _inside(leaf_begin, leaf_end, len(leaf_values))
        and _inside(category_begin, category_end, len(categories))
        and bool((vectors[is_leaf] == (leaf_width if leaf_width > 1 else 0)).all())
    ):
        raise ConfigError(f"is damaged: tree {index} refers to values outside itself")


def _inside(begin: NDArray[np.uint64], end: NDArray[np.uint64], limit: int) -> bool:
    return bool((begin <= end).all()) and int(end.max(initial=0)) <= limit


class _Walk:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _advance(self, size: int) -> int:
        start = self._at
        if start + size > len(self._data):
            raise ConfigError(f"is cut short or damaged: it ends within a field at byte {start}")
        self._at = start + size
        return start

    def record(self, layout: str) -> tuple[int, ...]:
        record = struct.Struct(layout)
        return record.unpack_from(self._data, self._advance(record.size))

    def array(self, kind: str) -> NDArray[Any]:
        (count,) = self.record("<Q")
        dtype = np.dtype(kind)
        start = self._advance(count * dtype.itemsize)
        return np.frombuffer(self._data, dtype, count, start) if count else np.empty(0, dtype)

    def no_extensions(self, lists: int) -> None:
        """Treelite 4 writes no optional fields; what a file that has some means is unknown."""
        if any(self.record(f"<{lists}i")):
            raise ConfigError("has optional fields that no treelite known here writes")

    def end(self) -> None:
        if self._at != len(self._data):
            raise ConfigError(f"is damaged: {len(self._data) - self._at} bytes follow the last tree")
