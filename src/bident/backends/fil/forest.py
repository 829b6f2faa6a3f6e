"""The trees of a model as plain numpy arrays, checked, whatever library wrote them.

Every node of every tree lies in one flat array. Tree ``t`` owns the nodes ``offsets[t]:offsets[t + 1]``:
its root is the first of them, children are numbered from there, and a right child follows its left
sibling. A row goes left where ``row[feature] < threshold`` in float32, and where the feature is NaN it
goes the node's default way. Libraries differ (LightGBM compares ``<=`` in float64); :func:`read_forest`
turns each comparison into this one *exactly*: for every float32 value the answer is the original's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.backends.fil.structure import walk_trees
from bident.backends.fil.treelite_library import TreeliteModel
from bident.errors import ConfigError

_LEAF, _NUMERICAL, _CATEGORICAL = 0, 1, 2  # treelite's node types
_LESS, _LESS_OR_EQUAL = 2, 3  # treelite's comparison operators


@dataclass(frozen=True)
class Postprocess:
    """What a model does with the sum of its trees: treelite's name for it, and its two constants."""

    name: str
    sigmoid_alpha: float = 1.0
    ratio_c: float = 1.0


@dataclass(frozen=True)
class Forest:
    """Trees and what happens to their sum.

    ``values`` [nodes, 1] or [nodes, classes]: what a leaf adds, averaging already applied. A tree adds
    to class ``tree_class[t]``, or to every class where that is -1. ``cover`` [nodes] is how much of
    the training data passed each node, None where the file does not say. ``plain`` is False where a
    node's test is not a comparison with a threshold (categories): then only ``values`` and the
    shape of the trees can be relied upon.
    """

    features: int
    classes: int
    offsets: NDArray[np.int64]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    default_left: NDArray[np.bool_]
    values: NDArray[np.float64]
    tree_class: NDArray[np.int32]
    cover: NDArray[np.float64] | None
    base_scores: NDArray[np.float64]
    postprocess: Postprocess
    plain: bool

    @property
    def trees(self) -> int:
        """How many trees there are."""
        return len(self.tree_class)

    @property
    def right(self) -> NDArray[np.int32]:
        """The right child of each node, [nodes]; -1 for leaves."""
        return np.where(self.left < 0, -1, self.left + 1).astype(np.int32)

    @property
    def leaf(self) -> NDArray[np.bool_]:
        """Which nodes are leaves, [nodes]."""
        return self.left < 0


def read_forest(model: TreeliteModel) -> Forest:
    """Copy the trees out of ``model``. Raises ConfigError where they are not trees."""
    tree_class = model.header("class_id").astype(np.int32)
    _check_votes(model, tree_class)
    sizes = [int(model.tree(index, "num_nodes")[0]) for index in range(model.trees)]
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
    left, right = _field(model, "cleft", offsets, np.int32), _field(model, "cright", offsets, np.int32)
    feature = _field(model, "split_index", offsets, np.int32)
    order = walk_trees(offsets, left, right, feature, model.features)
    operators = _field(model, "cmp", offsets, np.int8)
    inner = left >= 0
    cover = _cover(model, offsets)
    new_offsets, new_left = _renumbered(order, offsets, left)
    return Forest(
        features=model.features,
        classes=model.classes,
        offsets=new_offsets,
        feature=np.where(inner, feature, 0)[order].astype(np.int32),
        threshold=_strict_float32(_field(model, "threshold", offsets), operators == _LESS_OR_EQUAL)[order],
        left=new_left,
        default_left=_field(model, "default_left", offsets, np.bool_)[order],
        values=_leaf_values(model, offsets, tree_class)[order],
        tree_class=tree_class,
        cover=None if cover is None else cover[order],
        base_scores=_base_scores(model),
        postprocess=Postprocess(
            model.header("postprocessor").tobytes().decode("latin-1"),
            float(model.header("sigmoid_alpha")[0]),
            float(model.header("ratio_c")[0]),
        ),
        plain=_is_plain(model, offsets, inner, operators),
    )


def _renumbered(
    order: NDArray[np.int64], offsets: NDArray[np.int64], left: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Offsets and left children when the nodes ``order`` are all there are, in that order."""
    tree = np.searchsorted(offsets, order, side="right") - 1
    new_offsets = np.concatenate([[0], np.cumsum(np.bincount(tree, minlength=len(offsets) - 1))]).astype(np.int64)
    place = np.empty(len(left), np.int64)
    place[order] = np.arange(len(order)) - new_offsets[tree]
    moved = left[order]
    return new_offsets, np.where(moved < 0, -1, place[moved + offsets[tree]]).astype(np.int32)


def _field(model: TreeliteModel, name: str, offsets: NDArray[np.int64], dtype: Any = None) -> NDArray[Any]:
    parts = [model.tree(index, name) for index in range(len(offsets) - 1)]
    if any(len(part) != size for part, size in zip(parts, np.diff(offsets), strict=True)):
        raise ConfigError(f"is damaged: '{name}' does not have one element per node")
    joined = np.concatenate(parts) if parts else np.empty(0)
    return joined if dtype is None else joined.astype(dtype, copy=False)


def _check_votes(model: TreeliteModel, tree_class: NDArray[np.int32]) -> None:
    """GTIL writes where a tree's target and class say: they must exist."""
    target, classes = model.header("target_id"), model.classes
    lowest = -1 if model.header("leaf_vector_shape").max(initial=1) > 1 else 0
    if not len(target) == len(tree_class) == model.trees:
        raise ConfigError("is damaged: the number of trees differs from the number declared")
    if len(target) and not (
        lowest <= tree_class.min() <= tree_class.max() < classes and -1 <= target.min() <= target.max() < 1
    ):
        raise ConfigError("is damaged: a tree adds to a class that does not exist")


def _is_plain(
    model: TreeliteModel, offsets: NDArray[np.int64], inner: NDArray[np.bool_], operators: NDArray[np.int8]
) -> bool:
    kinds = _field(model, "node_type", offsets, np.int8)
    if ((kinds == _LEAF) == inner).any() or (kinds < _LEAF).any() or (kinds > _CATEGORICAL).any():
        raise ConfigError("is damaged: a node is of a kind that contradicts its children")
    known = (operators == _LESS) | (operators == _LESS_OR_EQUAL)
    return bool(((kinds == _NUMERICAL) & known)[inner].all())


def _strict_float32(threshold: NDArray[Any], or_equal: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The float32 t' such that for every float32 x: ``x < t'`` is ``x < t``, or ``x <= t`` where ``or_equal``.

    ``x < t`` is ``x < ceil(t)``, and ``x <= t`` is ``x < next(floor(t))``, in float32 steps.
    """
    up, down = np.float32(np.inf), np.float32(-np.inf)
    with np.errstate(over="ignore"):  # beyond the largest float32 lies infinity, which is right here
        nearest = threshold.astype(np.float32)
        exact = nearest.astype(np.float64)
        ceiling = np.where(exact < threshold, np.nextafter(nearest, up), nearest)
        floor = np.where(exact > threshold, np.nextafter(nearest, down), nearest)
        return np.where(or_equal, np.nextafter(floor, up), ceiling).astype(np.float32)


def _leaf_values(
    model: TreeliteModel, offsets: NDArray[np.int64], tree_class: NDArray[np.int32]
) -> NDArray[np.float64]:
    vectors = bool((tree_class < 0).any()) and model.classes > 1
    values = np.zeros((int(offsets[-1]), model.classes if vectors else 1))
    if vectors:
        for index, start in enumerate(offsets[:-1]):
            begin = model.tree(index, "leaf_vector_begin").astype(np.int64)
            filled = np.flatnonzero(model.tree(index, "leaf_vector_end").astype(np.int64) > begin)
            elements = model.tree(index, "leaf_vector")
            where = begin[filled, None] + np.arange(model.classes)
            if where.max(initial=0) >= max(1, len(elements)):
                raise ConfigError("is damaged: a leaf's values lie outside its tree")
            values[start + filled] = elements[where]
    else:
        values[:, 0] = _field(model, "leaf_value", offsets, np.float64)
    if model.header("average_tree_output")[0]:
        voters = np.bincount(np.maximum(tree_class, 0), minlength=model.classes)[np.maximum(tree_class, 0)]
        values /= np.repeat(voters, np.diff(offsets))[:, None]
    return values


def _cover(model: TreeliteModel, offsets: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Rows per node where the file counts them, else their summed weight, else None."""
    for name in ("data_count", "sum_hess"):
        present = [model.tree(index, f"{name}_present") for index in range(len(offsets) - 1)]
        if present and all(len(flags) and bool(flags.all()) for flags in present):
            cover = _field(model, name, offsets, np.float64)
            return cover if (cover[offsets[:-1]] > 0).all() else None
    return None


def _base_scores(model: TreeliteModel) -> NDArray[np.float64]:
    scores = model.header("base_scores").astype(np.float64)
    return scores if len(scores) == model.classes else np.resize(scores, model.classes)
