"""A forest as an XGBoost model, so that XGBoost can run trees that any library made.

The user's own file is never handed to XGBoost's C library, which trusts what it reads: a wrong parent
in a tree is a segmentation fault there. What is written here is derived from checked trees only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bident.backends.fil.forest import Forest
from bident.backends.fil.xgboost_document import dump_json

_ROOT = 2**31 - 1
_LARGEST = np.finfo(np.float32).max
_VERSION = [2, 1, 0]  # a schema that every XGBoost since 1.6 reads


def can_write(forest: Forest) -> bool:
    """Whether the trees have a counterpart: thresholds only, one class per tree."""
    return forest.plain and forest.values.shape[1] == 1 and forest.trees > 0


def xgboost_trees(forest: Forest) -> bytes:
    """XGBoost JSON whose margins are the sums of the trees, without ``base_scores``."""
    several = forest.classes > 1
    objective = {"name": "multi:softprob"} if several else {"name": "reg:squarederror"}
    parameters = {"softmax_multiclass_param": {"num_class": str(forest.classes)}} if several else {"reg_loss_param": {}}
    document = {
        "learner": {
            "attributes": {},
            "feature_names": [],
            "feature_types": [],
            "gradient_booster": {
                "name": "gbtree",
                "model": {
                    "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(forest.trees)},
                    "iteration_indptr": [0, forest.trees],
                    "tree_info": np.maximum(forest.tree_class, 0),
                    "trees": [_tree(forest, index) for index in range(forest.trees)],
                },
            },
            "learner_model_param": {
                "base_score": "0E0",
                "boost_from_average": "0",
                "num_class": str(forest.classes if several else 0),
                "num_feature": str(forest.features),
                "num_target": "1",
            },
            "objective": objective | parameters,
        },
        "version": _VERSION,
    }
    return dump_json(document)


def _tree(forest: Forest, index: int) -> dict[str, Any]:
    # XGBoost's predictor never reads the right child: it must follow its sibling, as it does in a Forest.
    nodes = slice(forest.offsets[index], forest.offsets[index + 1])
    left, right = forest.left[nodes], forest.right[nodes]
    inner = np.flatnonzero(left >= 0)
    parents = np.full(len(left), _ROOT, np.int32)
    parents[left[inner]] = parents[right[inner]] = inner
    zeros = np.zeros(len(left), np.float32)
    # JSON has no infinity; below the largest float lies everything but that float and infinity itself.
    value = np.clip(forest.values[nodes, 0], -_LARGEST, _LARGEST).astype(np.float32)
    threshold = np.clip(forest.threshold[nodes], -_LARGEST, _LARGEST)
    return {
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(forest.features),
            "num_nodes": str(len(left)),
            "size_leaf_vector": "1",
        },
        "id": index,
        "base_weights": zeros,
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": forest.default_left[nodes].astype(np.uint8),
        "left_children": left,
        "right_children": right,
        "parents": parents,
        "split_indices": forest.feature[nodes],
        "split_conditions": np.where(left < 0, value, threshold),
        "split_type": np.zeros(len(left), np.uint8),
        "loss_changes": zeros,
        "sum_hessian": zeros,
    }
