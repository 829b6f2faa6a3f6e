"""What a tree model's file says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bident.backends.fil.formats import ModelType, detect
from bident.backends.fil.loading import TreeModel, load_trees
from bident.backends.fil.xgboost_document import XgboostDocument
from bident.doctor.models.case import Case
from bident.errors import ConfigError
from bident.model.files import read_file


@dataclass(frozen=True)
class TreeFile:
    """One file of a fil model, and the kind that its content tells."""

    path: Path
    kind: ModelType
    data: bytes

    @property
    def is_xgboost_document(self) -> bool:
        """Whether it is XGBoost's JSON, or the same in UBJSON."""
        return self.kind in (ModelType.XGBOOST_JSON, ModelType.XGBOOST_UBJ)

    def document(self) -> XgboostDocument | None:
        """The content of XGBoost's JSON or UBJSON; None for anything else, or if it is damaged."""
        read = {ModelType.XGBOOST_JSON: XgboostDocument.from_json, ModelType.XGBOOST_UBJ: XgboostDocument.from_ubjson}
        try:
            return read[self.kind](self.data) if self.kind in read else None
        except ConfigError:
            return None

    def trees(self) -> TreeModel:
        """The trees in it. Raises ConfigError."""
        return load_trees(self.path, self.kind)


def tree_files(case: Case) -> Iterator[TreeFile]:
    """The files of a case that the fil backend serves, oldest version first; what is no tree model is left out."""
    for path in case.model_files() if case.backend == "fil" else ():
        try:
            data = read_file(path)
            yield TreeFile(path, detect(data), data)
        except (ConfigError, OSError):
            continue
