"""One tree of an XGBoost document: checked where treelite would trust it, and brought to today's schema."""

from __future__ import annotations

from typing import Any

import numpy as np

from bident.errors import ConfigError

TREE_FIELDS = {
    "base_weights",
    "categories",
    "categories_nodes",
    "categories_segments",
    "categories_sizes",
    "default_left",
    "id",
    "leaf_child_counts",
    "leaf_weights",
    "left_children",
    "loss_changes",
    "parents",
    "right_children",
    "split_conditions",
    "split_indices",
    "split_type",
    "sum_hessian",
    "tree_param",
}
"""Every field that a version up to 3.2 writes."""

_ONLY_DESCRIBES = {"leaf_child_counts"}


def repaired_tree(index: int, tree: dict[str, Any]) -> dict[str, Any]:
    """The fields of ``tree`` that treelite reads.

    Raises ConfigError for references that lead outside the tree, and KeyError, TypeError or ValueError
    for what is no tree at all.
    """
    kept = {key: tree[key] for key in tree.keys() & TREE_FIELDS - _ONLY_DESCRIBES} | {"id": index}
    _check_categories(index, kept)
    width = int(kept["tree_param"].get("size_leaf_vector", 1))
    if width > 1:
        if "leaf_weights" not in kept:
            kept |= _separate_leaf_vectors(kept, width)
        _check_leaf_vectors(index, kept, width)
    return kept


def _check_categories(index: int, tree: dict[str, Any]) -> None:
    if not len(tree.get("categories_nodes", ())):
        return
    nodes, start, count = (np.asarray(tree[f"categories_{name}"], np.int64) for name in ("nodes", "segments", "sizes"))
    categories = np.asarray(tree["categories"], np.int64)
    exist = (
        len(nodes) == len(start) == len(count)
        and 0 <= nodes.min() <= nodes.max() < len(tree["left_children"])
        and start.min() >= 0
        and count.min() >= 0
        and (start + count).max() <= len(categories)
        and categories.min(initial=0) >= 0
    )
    if not exist:
        raise ConfigError(f"is damaged: tree {index} refers to categories that do not exist")


def _separate_leaf_vectors(tree: dict[str, Any], width: int) -> dict[str, Any]:
    """Versions 2.0 to 3.0 kept a leaf's values among the weights of all nodes; later ones keep them apart.

    A leaf's place among the leaves stands where other nodes have their right child.
    """
    leaf = np.asarray(tree["left_children"], np.int64) < 0
    weights = np.asarray(tree["base_weights"], np.float32).reshape(len(leaf), width)
    unknown = np.zeros(len(leaf), np.float32)
    return {
        "leaf_weights": weights[leaf].reshape(-1),
        "right_children": np.where(leaf, np.cumsum(leaf) - 1, np.asarray(tree["right_children"], np.int64)),
        "split_conditions": np.where(leaf, np.float32(0), np.asarray(tree["split_conditions"], np.float32)),
        "loss_changes": unknown,
        "sum_hessian": unknown,
    }


def _check_leaf_vectors(index: int, tree: dict[str, Any], width: int) -> None:
    left, places = np.asarray(tree["left_children"], np.int64), np.asarray(tree["right_children"], np.int64)
    places = places[left < 0] if len(left) == len(places) else places[:0]
    if not len(places) or places.min() < 0 or (places.max() + 1) * width > len(tree["leaf_weights"]):
        raise ConfigError(f"is damaged: tree {index} refers to leaf values that do not exist")
