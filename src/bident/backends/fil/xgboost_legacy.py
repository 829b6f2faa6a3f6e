"""XGBoost's first file format (``model_type: xgboost``), read into the document of the later ones.

The file is a dump of C structs without a mark or checksum, so every count is held against what the
file still contains before anything is read on its word.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.backends.fil.xgboost_document import XgboostDocument
from bident.errors import ConfigError

_LEARNER = struct.Struct("<fIiii II Ii 100x")  # base_score, features, classes, 2 flags, version, targets, flag
_BOOSTER = struct.Struct("<i 28x 128x")  # trees
_TREE = struct.Struct("<4x i 12x i 124x")  # nodes, leaf vector
_NODE = np.dtype([("parent", "<i4"), ("left", "<i4"), ("right", "<i4"), ("split", "<u4"), ("value", "<f4")])
_STATISTICS = np.dtype([("loss_change", "<f4"), ("cover", "<f4"), ("weight", "<f4"), ("children", "<i4")])
_DEFAULT_LEFT = np.uint32(1 << 31)
_PARENT = np.int32(2**31 - 1)
_DELETED = np.uint32(2**32 - 1)
_LOGISTIC = ("binary:logistic", "binary:logitraw", "reg:logistic", "rank:pairwise")
_EXPONENTIAL = ("count:poisson", "reg:gamma", "reg:tweedie", "survival:cox")


def read_legacy(data: bytes) -> XgboostDocument:
    """Decode a legacy file. Raises ConfigError where it is cut short or is something else."""
    reader = _Reader(data.removeprefix(b"binf"))
    base_score, features, classes, _, _, major, minor, targets, _ = reader.unpack(_LEARNER)
    objective, booster = reader.text(), reader.text()
    if booster not in ("gbtree", "dart", "gblinear") or not objective.isascii():
        raise ConfigError("is none of the formats known here (XGBoost, LightGBM, treelite)")
    if booster == "gblinear":
        raise ConfigError("is a linear booster (gblinear), which has no trees: serve it as ONNX")
    (count,) = reader.unpack(_BOOSTER)
    if count < 0 or count * _TREE.size > len(data):
        raise ConfigError(f"is damaged: it declares {count} trees, which do not fit the file")
    trees = [_tree(reader, features) for _ in range(count)]
    model: dict[str, Any] = {
        "gbtree_model_param": {"num_trees": str(count)},
        "tree_info": reader.array(np.dtype("<i4"), count),
        "trees": trees,
    }
    gradient_booster = {"name": booster, "model": model}
    if booster == "dart":
        weights = reader.array(np.dtype("<f4"), *reader.unpack(struct.Struct("<Q")))
        gradient_booster = {"name": booster, "gbtree": {"name": "gbtree", "model": model}, "weight_drop": weights}
    learner = {
        "gradient_booster": gradient_booster,
        "learner_model_param": {
            "base_score": str(_user_space(base_score, objective) if major < 1 else base_score),
            "num_class": str(classes),
            "num_feature": str(features),
            "num_target": str(max(1, targets)),
        },
        "objective": {"name": objective},
    }
    return XgboostDocument({"learner": learner, "version": [max(1, major), minor, 0]})


def _user_space(margin: float, objective: str) -> float:
    """Versions before 1.0 saved the intercept as a raw score, later ones as a prediction."""
    if objective in _LOGISTIC:
        return float(1 / (1 + np.exp(-margin)))
    return float(np.exp(margin)) if objective in _EXPONENTIAL else margin


def _tree(reader: _Reader, features: int) -> dict[str, Any]:
    count, leaf_vector = reader.unpack(_TREE)
    nodes, statistics = reader.array(_NODE, count), reader.array(_STATISTICS, count)
    split, leaf = nodes["split"], nodes["left"] < 0
    return {
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(features),
            "num_nodes": str(count),
            "size_leaf_vector": str(max(1, leaf_vector)),
        },
        "base_weights": np.ascontiguousarray(statistics["weight"]),
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": (~leaf & (split >= _DEFAULT_LEFT)).astype(np.int32),
        "left_children": np.ascontiguousarray(nodes["left"]),
        "right_children": np.ascontiguousarray(nodes["right"]),
        "parents": nodes["parent"] & _PARENT,  # the high bit marks a left child
        "split_indices": np.where(leaf | (split == _DELETED), 0, split & ~_DEFAULT_LEFT).astype(np.int32),
        "split_conditions": np.ascontiguousarray(nodes["value"]),
        "split_type": np.zeros(count, np.int32),
        "loss_changes": np.ascontiguousarray(statistics["loss_change"]),
        "sum_hessian": np.ascontiguousarray(statistics["cover"]),
    }


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _advance(self, size: int) -> int:
        start = self._at
        if size < 0 or start + size > len(self._data):
            raise ConfigError(f"ends in the middle of a record at byte {start} (cut short, or another format)")
        self._at = start + size
        return start

    def unpack(self, record: struct.Struct) -> tuple[Any, ...]:
        return record.unpack_from(self._data, self._advance(record.size))

    def text(self) -> str:
        (length,) = self.unpack(struct.Struct("<Q"))
        start = self._advance(length)
        return self._data[start : start + length].decode("latin-1")

    def array(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        return np.frombuffer(self._data, dtype, count, self._advance(count * dtype.itemsize)).copy()
