"""What a tree model's file says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from bident.backends.fil.formats import ModelType, detect
from bident.backends.fil.loading import TreeModel, load_trees
from bident.backends.fil.xgboost_document import XgboostDocument
from bident.backends.onnx.modelfile import Edition, edition
from bident.doctor.models.case import Case
from bident.errors import ConfigError
from bident.model.files import read_file


@dataclass(frozen=True)
class TreeFile:
    """One file of a fil model, and the kind that its content tells."""

    path: Path
    kind: ModelType
    data: bytes

    def document(self) -> XgboostDocument | None:
        """The content of XGBoost's JSON or UBJSON; None for anything else, or if it is damaged."""
        read = {ModelType.XGBOOST_JSON: XgboostDocument.from_json, ModelType.XGBOOST_UBJ: XgboostDocument.from_ubjson}
        try:
            return read[self.kind](self.data) if self.kind in read else None
        except ConfigError:
            return None

    def trees(self) -> TreeModel:
        """The trees in it. Raises ConfigError."""
        return read_trees(self.path)


def read_trees(path: Path) -> TreeModel:
    """The trees in the file at ``path``. Raises ConfigError. The last ones are kept: several checks look at them."""
    try:
        found = edition(path)
    except OSError:
        return load_trees(path, None)  # which says why
    return _trees(found)


@lru_cache(maxsize=1)
def _trees(file: Edition) -> TreeModel:
    return load_trees(Path(file[0]), None)


def tree_files(case: Case) -> Iterator[TreeFile]:
    """The files of a case that the fil backend serves, oldest version first; what is no tree model is left out."""
    for path in case.model_files() if case.backend == "fil" else ():
        try:
            data = read_file(path)
            yield TreeFile(path, detect(data), data)
        except (ConfigError, OSError):
            continue
