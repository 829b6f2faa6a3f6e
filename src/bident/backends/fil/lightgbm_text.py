"""What treelite does not check or read of a LightGBM model file: that it is whole, and zero as missing."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from bident.errors import ConfigError

_HEADER = re.compile(rb"^(\w+)=(.*?)\r?$", re.M)
_FIELD = re.compile(rb"^(num_leaves|split_feature|decision_type|leaf_value|is_linear)=(.*?)\r?$", re.M)
_CATEGORICAL = 1
_MISSING, _MISSING_IS_ZERO = 0b1100, 0b0100  # 0b1000: missing is NaN
_MAX_CLASSES = 100_000


def check_lightgbm(data: bytes) -> None:
    """Raises ConfigError unless ``data`` holds every tree it announces, each with all its leaves."""
    start = data.find(b"\nTree=")
    header = dict(_HEADER.findall(data[: start if start > 0 else len(data)]))
    found = data.count(b"\nTree=")
    # Versions before 2.2 announce nothing.
    expected = len(header[b"tree_sizes"].split()) if b"tree_sizes" in header else found
    if expected != found or (b"tree_sizes" in header and b"end of trees" not in data):
        raise ConfigError(f"is cut short or damaged: it announces {expected} trees and holds {found}")
    for key, limit in ((b"num_class", _MAX_CLASSES), (b"max_feature_idx", 2**31 - 2)):
        value = header.get(key, b"")
        if not value.isdigit() or int(value) > limit:
            raise ConfigError(f"is damaged: {key.decode()}={value.decode('latin-1')}")
    leaves = b"0"
    for key, value in _FIELD.findall(data):
        if key == b"num_leaves":
            leaves = value
        elif key == b"leaf_value" and str(len(value.split())).encode() != leaves.strip():
            raise ConfigError(
                f"is damaged: a tree of {leaves.decode('latin-1')} leaves has {len(value.split())} values"
            )
        elif key == b"is_linear" and value.strip() == b"1":
            raise ConfigError("has linear trees (linear_tree=true), which fil does not compute: train without them")


def without_zero_as_missing(data: bytes) -> tuple[bytes, NDArray[np.intp] | None]:
    """The model with NaN as the only missing value, and the features whose zeros must become NaN for it.

    Treelite overlooks that zeros can count as missing (``zero_as_missing=true``). The features are
    None, and the model is ``data`` itself, where none do. Raises ConfigError where trees disagree
    about a feature.
    """
    zeros: set[int] = set()
    others: set[int] = set()
    split: NDArray[np.int64] = np.empty(0, np.int64)

    def rewritten(field: re.Match[bytes]) -> bytes:
        nonlocal split
        key, value = field.groups()
        if key == b"split_feature":
            split = _integers(value)
        if key != b"decision_type":
            return field.group()
        decision = _integers(value)
        if len(decision) != len(split):
            raise ConfigError("is damaged: a tree has another number of decisions than of splits")
        numerical = decision & _CATEGORICAL == 0
        zero = numerical & (decision & _MISSING == _MISSING_IS_ZERO)
        zeros.update(split[zero].tolist())
        others.update(split[numerical & ~zero].tolist())
        decision = np.where(zero, decision ^ _MISSING, decision)
        return b"decision_type=" + " ".join(map(str, decision.tolist())).encode()

    text = _FIELD.sub(rewritten, data)
    if not zeros:
        return data, None
    if zeros & others:
        raise ConfigError(f"treats zero as missing in some trees only (feature {min(zeros & others)}): retrain it")
    return text, np.array(sorted(zeros), np.intp)


def _integers(text: bytes) -> NDArray[np.int64]:
    try:
        return np.array(text.split(), np.int64)
    except ValueError:
        raise ConfigError(f"is damaged: {text[:40].decode('latin-1')!r} is not a list of whole numbers") from None


def version_of(data: bytes) -> str:
    """The version of LightGBM's format that the file names, for error messages."""
    found = re.search(rb"^version=(\w+)", data, re.M)
    return f"LightGBM format {found.group(1).decode()}" if found else ""
