"""Which kind of tree model a file is, by its content."""

from __future__ import annotations

import re
import struct
from enum import Enum

from bident.errors import ConfigError


class ModelType(Enum):
    """Triton's ``model_type``: how the file is written, and the name it has by default."""

    XGBOOST_JSON = "xgboost_json"
    XGBOOST_UBJ = "xgboost_ubj"
    XGBOOST = "xgboost"
    LIGHTGBM = "lightgbm"
    TREELITE = "treelite_checkpoint"

    @property
    def file_name(self) -> str:
        """The name Triton looks for in the version folder."""
        return _FILE_NAMES[self]

    @property
    def description(self) -> str:
        """The format in words."""
        return _DESCRIPTIONS[self]


_FILE_NAMES = {
    ModelType.XGBOOST_JSON: "xgboost.json",
    ModelType.XGBOOST_UBJ: "xgboost.ubj",
    ModelType.XGBOOST: "xgboost.model",
    ModelType.LIGHTGBM: "model.txt",
    ModelType.TREELITE: "checkpoint.tl",
}
_DESCRIPTIONS = {
    ModelType.XGBOOST_JSON: "XGBoost JSON",
    ModelType.XGBOOST_UBJ: "XGBoost UBJSON",
    ModelType.XGBOOST: "XGBoost's legacy binary format",
    ModelType.LIGHTGBM: "a LightGBM model file",
    ModelType.TREELITE: "a treelite checkpoint",
}
_SAVE_INSTEAD = (
    "save the model with booster.save_model('xgboost.json') (XGBoost) or booster.save_model('model.txt') (LightGBM)"
)
_REFUSED = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the model: run 'git lfs pull'"),
    (b"\x1f\x8b", "is compressed with gzip: unpack it first"),
    (b"PK\x03\x04", "is a zip archive (a joblib, torch or skops file?), not a tree model"),
    (b"CONFIG-offset:", f"is an XGBoost memory snapshot (a pickled Booster's inside): {_SAVE_INSTEAD}"),
    (b"bs64", f"is a base64 XGBoost model of versions before 0.9: {_SAVE_INSTEAD}"),
    (b"<!", "is an HTML page (the answer of a download that failed?)"),
    (b"<html", "is an HTML page (the answer of a download that failed?)"),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05]|c[a-z_]+\n[a-z_]+\n|\(dp0\n|ccopy_reg")
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{\s*[\"}]")
_UBJSON = re.compile(rb"\{[LiUIl$#]")
_TREELITE_VERSIONS = range(1, 10)


def detect(data: bytes) -> ModelType:
    """The format of a model file with content ``data``.

    Raises ConfigError for what cannot be a tree model: empty, a pointer, a pickle, an archive. Legacy
    XGBoost files have no mark of their own: they are what is left.
    """
    if not data.strip():
        raise ConfigError("is empty")
    if _PICKLE.match(data):
        raise ConfigError(f"is a Python pickle, which is never loaded (it can run any code): {_SAVE_INSTEAD}")
    if _JSON.match(data):
        return ModelType.XGBOOST_JSON
    if _UBJSON.match(data):
        return ModelType.XGBOOST_UBJ
    if re.match(rb"tree\r?\n", data):
        return ModelType.LIGHTGBM
    if _looks_like_checkpoint(data):
        return ModelType.TREELITE
    for mark, what in _REFUSED:
        if data.startswith(mark):
            raise ConfigError(what)
    return ModelType.XGBOOST


def _looks_like_checkpoint(data: bytes) -> bool:
    """Three small version numbers and two element types (2 and 3 are float32 and float64)."""
    if len(data) < 22:
        return False
    major, minor, patch, threshold, leaf = struct.unpack_from("<iiiBB", data)
    return major in _TREELITE_VERSIONS and 0 <= minor < 100 and 0 <= patch < 100 and threshold <= 3 and leaf <= 3
