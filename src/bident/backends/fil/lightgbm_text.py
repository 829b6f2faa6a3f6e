"""What treelite does not check or read of a LightGBM model file: that it is sound, and zero as missing.

Treelite follows the file's children and categories without looking: one wrong digit is a crash of the
process, or a loop without end.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.backends.fil.structure import walk_trees
from bident.errors import ConfigError

_LINE = re.compile(rb"^(\w+)=(.*?)\r?$", re.M)
_CATEGORICAL = 1
_MISSING, _MISSING_IS_ZERO = 0b1100, 0b0100  # 0b1000: missing is NaN
_MAX_CLASSES = 100_000
_MAX_FEATURES = 10_000_000


def read_lightgbm(data: bytes) -> tuple[bytes, NDArray[np.intp] | None]:
    """The model with NaN as the only missing value, and the features whose zeros must become NaN for it.

    Treelite overlooks that zeros can count as missing (``zero_as_missing=true``). The features are
    None, and the model is ``data`` itself, where none do. Raises ConfigError for a file that is cut
    short or damaged, and for one whose trees disagree about a feature.
    """
    head, *trees = re.split(rb"^Tree=", data, flags=re.M)
    features = _check_header(dict(_LINE.findall(head)), len(trees), is_whole=b"end of trees" in data)
    zeros: set[int] = set()
    others: set[int] = set()
    for index, text in enumerate(trees):
        tree = _Tree(index, dict(_LINE.findall(text)))
        tree.check(features)
        numerical = tree.decision & _CATEGORICAL == 0
        zero = numerical & (tree.decision & _MISSING == _MISSING_IS_ZERO)
        zeros.update(tree.split[zero].tolist())
        others.update(tree.split[numerical & ~zero].tolist())
    if not zeros:
        return data, None
    if zeros & others:
        raise ConfigError(f"treats zero as missing in some trees only (feature {min(zeros & others)}): retrain it")
    return re.sub(rb"^decision_type=(.*?)\r?$", _nan_for_zero, data, flags=re.M), np.array(sorted(zeros), np.intp)


def version_of(data: bytes) -> str:
    """The version of LightGBM's format that the file names, for error messages."""
    found = re.search(rb"^version=(\w+)", data, re.M)
    return f"LightGBM format {found.group(1).decode()}" if found else ""


def _check_header(header: dict[bytes, bytes], found: int, *, is_whole: bool) -> int:
    """Returns the number of features."""
    # Versions before 2.2 announce nothing.
    expected = len(header[b"tree_sizes"].split()) if b"tree_sizes" in header else found
    if expected != found or (b"tree_sizes" in header and not is_whole):
        raise ConfigError(f"is cut short or damaged: it announces {expected} trees and holds {found}")
    for key, limit in ((b"num_class", _MAX_CLASSES), (b"max_feature_idx", _MAX_FEATURES)):
        value = header.get(key, b"")
        if not value.isdigit() or int(value) > limit:
            raise ConfigError(f"is damaged: {key.decode()}={value.decode('latin-1')}")
    per_iteration = header.get(b"num_tree_per_iteration", header[b"num_class"])
    if per_iteration != header[b"num_class"]:
        raise ConfigError("is damaged: num_tree_per_iteration differs from num_class")
    return int(header[b"max_feature_idx"]) + 1


def _nan_for_zero(line: re.Match[bytes]) -> bytes:
    decision = _numbers(line.group(1), np.int64)
    zero = (decision & _CATEGORICAL == 0) & (decision & _MISSING == _MISSING_IS_ZERO)
    return b"decision_type=" + " ".join(map(str, np.where(zero, decision ^ _MISSING, decision).tolist())).encode()


class _Tree:
    def __init__(self, index: int, fields: dict[bytes, bytes]) -> None:
        self._fields = fields
        self._index = index
        self.split = self._array(b"split_feature")
        self.decision = self._array(b"decision_type")

    def _array(self, key: bytes, dtype: Any = np.int64) -> NDArray[Any]:
        return _numbers(self._fields.get(key, b""), dtype)

    def check(self, features: int) -> None:
        """Raises ConfigError unless treelite can follow every node of this tree."""
        if self._fields.get(b"is_linear", b"0").strip() == b"1":
            raise ConfigError("has linear trees (linear_tree=true), which fil does not compute: train without them")
        leaves = len(self._array(b"leaf_value", np.float64))
        if self._fields.get(b"num_leaves", b"").strip() != str(leaves).encode() or not leaves:
            raise self._damaged(f"has {leaves} leaf values")
        left, right = self._array(b"left_child"), self._array(b"right_child")
        thresholds = self._array(b"threshold", np.float64)
        if leaves == 1:
            return  # what it says of splits is not read
        if any(len(array) != leaves - 1 for array in (left, right, thresholds, self.split, self.decision)):
            raise self._damaged(f"does not have {leaves - 1} splits for {leaves} leaves")
        children = np.concatenate([left, right])
        if children.min() < -leaves or children.max() >= leaves - 1:
            raise self._damaged("has a child that does not exist")
        # The file numbers leaves -1, -2...; here they follow the splits.
        ends = np.full(leaves, -1)
        left, right = (np.concatenate([np.where(way < 0, leaves - 2 - way, way), ends]) for way in (left, right))
        walk_trees(np.array([0, 2 * leaves - 1]), left, right, np.concatenate([self.split, ends]), features)
        self._check_categories(thresholds)

    def _check_categories(self, thresholds: NDArray[np.float64]) -> None:
        picked = thresholds[self.decision & _CATEGORICAL == 1]
        if not len(picked):
            return
        bounds, sets = self._array(b"cat_boundaries"), self._array(b"cat_threshold")
        exist = len(bounds) > 1 and bounds[0] == 0 and bounds[-1] == len(sets) and bool((np.diff(bounds) >= 0).all())
        if not exist or picked.min() < 0 or picked.max() >= len(bounds) - 1 or (picked % 1).any():
            raise self._damaged("refers to categories that do not exist")
        if self._fields.get(b"num_cat", b"").strip() != str(len(bounds) - 1).encode():
            raise self._damaged(f"has {len(bounds) - 1} sets of categories")

    def _damaged(self, what: str) -> ConfigError:
        return ConfigError(f"is damaged: tree {self._index} {what}")


def _numbers(text: bytes, dtype: Any) -> NDArray[Any]:
    try:
        return np.array(text.split(), dtype)
    except (ValueError, OverflowError):
        raise ConfigError(f"is damaged: {text[:40].decode('latin-1')!r} is not a list of numbers") from None
