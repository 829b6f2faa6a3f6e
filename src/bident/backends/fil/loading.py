"""From a model file to trees in memory, whatever wrote it; or to an error that says what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bident.backends.fil.checkpoint import check_checkpoint
from bident.backends.fil.forest import Forest, read_forest
from bident.backends.fil.formats import ModelType, detect
from bident.backends.fil.lightgbm_text import read_lightgbm
from bident.backends.fil.lightgbm_text import version_of as lightgbm_version
from bident.backends.fil.treelite_library import TreeliteModel
from bident.backends.fil.xgboost_document import XgboostDocument
from bident.backends.fil.xgboost_document import version_of as xgboost_version
from bident.backends.fil.xgboost_legacy import read_legacy
from bident.errors import ConfigError

SUPPORTED = "XGBoost 0.9 to 3.x (JSON, UBJSON, legacy binary), LightGBM 2 to 4 (text), treelite 4 (checkpoint)"
"""What can be read, for error messages and documentation."""


class Task(IntEnum):
    """What a model was trained for (treelite's ``task_type``)."""

    BINARY = 0
    REGRESSION = 1
    MULTICLASS = 2
    RANKING = 3
    ISOLATION = 4


@dataclass(frozen=True)
class TreeModel:
    """A model file in memory.

    ``zero_as_missing`` names the features whose zeros must become NaN before the trees see them.
    ``notes`` is what a user should hear about the file.
    """

    path: Path
    model_type: ModelType
    library: TreeliteModel
    forest: Forest
    task: Task
    zero_as_missing: NDArray[np.intp] | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_classifier(self) -> bool:
        """Whether the objective is one of classification."""
        return self.task in (Task.BINARY, Task.MULTICLASS)


def load_trees(path: Path, declared: ModelType | None) -> TreeModel:
    """Read ``path``, whose format is ``declared`` or, where that is None, found out.

    Raises ConfigError that names the file, the version it says it has, what can be read and the cure.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"fil cannot open {path}: {error.strerror or error}") from None
    try:
        return _load(path, data, declared)
    except ConfigError as error:
        version = xgboost_version(data) or lightgbm_version(data)
        written = f" It says it was written by {version}." if version else ""
        raise ConfigError(
            f"fil cannot read {path}: the file {error.message}.{written} Supported: {SUPPORTED}."
        ) from None


def _load(path: Path, data: bytes, declared: ModelType | None) -> TreeModel:
    found = detect(data)
    if declared is not None and found is not declared:
        raise ConfigError(
            f"is {found.description}, not {declared.description}: set parameter model_type to '{found.value}'"
            if found is not ModelType.XGBOOST
            else f"is not {declared.description}, which parameter model_type ('{declared.value}') says it is"
        )
    zeros = None
    notes: list[str] = []
    if found is ModelType.LIGHTGBM:
        text, zeros = read_lightgbm(data)
        library = TreeliteModel.from_lightgbm(text)
    elif found is ModelType.TREELITE:
        check_checkpoint(data)
        library = TreeliteModel.from_checkpoint(data)
    else:
        readers = {
            ModelType.XGBOOST_JSON: XgboostDocument.from_json,
            ModelType.XGBOOST_UBJ: XgboostDocument.from_ubjson,
            ModelType.XGBOOST: read_legacy,
        }
        document = readers[found](data)
        library = TreeliteModel.from_xgboost_json(document.repaired())
        notes = document.notes
    if int(library.header("num_target")[0]) > 1:
        raise ConfigError("predicts several targets: treelite multi-target not supported")
    task = Task(int(library.header("task_type")[0]))
    return TreeModel(path, found, library, read_forest(library), task, zeros, tuple(notes))
