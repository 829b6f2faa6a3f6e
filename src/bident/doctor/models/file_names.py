"""Model files under another name than the one that is looked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bident.backends.fil.formats import ModelType, detect
from bident.backends.fil.parameters import declared_model_type
from bident.doctor import treatment
from bident.doctor.check import Fix
from bident.doctor.models.case import CANDIDATES, Case, ModelCheck, Seen, entries, holds_models
from bident.doctor.models.config_edit import config_fix, set_parameter
from bident.doctor.models.contents import GgufFile, PickleFile
from bident.doctor.models.folders import ConfigPlace, VersionFolders
from bident.doctor.models.tree_file import tree_files
from bident.errors import ConfigError
from bident.model.files import read_file
from bident.model.hints import closest, listed

_SUFFIX = {"onnxruntime": ".onnx", "python": ".py"}


class ModelFileName(ModelCheck):
    """The version folder holds no file of the right name."""

    name = "model-file-name"
    title = "The model file is not called what the backend looks for"
    cause = (
        "Each backend has its file name (model.onnx, model.py, xgboost.json), unless default_model_filename gives one"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        if case.is_ensemble or case.proto is None or case.backend not in CANDIDATES:
            return
        for version in case.versions:
            folder = case.directory / str(version)
            wanted = self._wanted(case)
            if any((folder / name).exists() for name in wanted):
                continue
            if case.model_file(version) is None or case.target:
                yield self._seen(case, folder, wanted)

    def _wanted(self, case: Case) -> list[str]:
        if case.filled.default_model_filename:
            return [str(case.filled.default_model_filename)]
        if case.backend != "fil" or case.config is None:
            return list(CANDIDATES[case.backend])
        try:
            kind = declared_model_type(case.config.parameters)
        except ConfigError:
            kind = None
        return [kind.file_name] if kind else list(CANDIDATES["fil"])

    def _seen(self, case: Case, folder: Path, wanted: list[str]) -> Seen:
        present = [entry for entry in entries(folder) if entry.is_file()]
        likely, name = _likely(case, present, wanted), wanted[0]
        fix = None
        cure = f"put the model there as {folder / name}, or set default_model_filename"
        if likely is not None:
            kind = _tree_kind(likely) if case.backend == "fil" and not case.filled.default_model_filename else None
            name = kind.file_name if kind else name
            cure = f"rename {likely.name} to {name}"
            fix = Fix(cure, partial(treatment.move, likely, folder / name))
        return Seen(
            folder,
            f"there is no {' or '.join(wanted)}; it holds {listed(entry.name for entry in entries(folder))}",
            cure,
            fix=fix,
        )


def _likely(case: Case, present: list[Path], wanted: list[str]) -> Path | None:
    """The file that is probably meant: the only one of its kind, or the one that is called nearly so."""
    suffix = _SUFFIX.get(case.backend, "")
    fitting = [path for path in present if (path.suffix.lower() == suffix if suffix else _tree_kind(path))]
    if len(fitting) == 1:
        return fitting[0]
    near = closest(wanted[0], [path.name for path in present])
    return next((path for path in present if path.name == near), None)


def _tree_kind(path: Path) -> ModelType | None:
    """The kind of a tree model by its content; None for what has no mark of its own, the old binary format too."""
    try:
        kind = detect(read_file(path))
    except (ConfigError, OSError):
        return None
    return None if kind is ModelType.XGBOOST else kind


class BackendUnknown(ModelCheck):
    """Neither the configuration nor the files say what runs the model."""

    name = "backend-unknown"
    title = "Nothing in a folder of the repository tells which backend its model is for"
    cause = "Every folder in a repository counts as a model; without backend in config.pbtxt, the file's name tells it"

    def look(self, case: Case) -> Iterator[Seen]:
        told, _, cure = case.filling[1].partition("; ")
        names_it = case.proto is None or case.proto.backend or case.proto.platform
        if not told or names_it or holds_models(case.directory) or _said_better(case):
            return
        fix = _usual_name(case)
        yield Seen(case.directory, told, fix.what if fix else f"{cure}, or take the folder away", fix=fix)


_BETTER = (VersionFolders(), ConfigPlace(), GgufFile(), PickleFile())
"""Checks that say of some folders why nothing in them tells the backend."""


def _said_better(case: Case) -> bool:
    return any(next(check.look(case), None) for check in _BETTER)


def _usual_name(case: Case) -> Fix | None:
    """Gives the only model file of a model's only version the name that tells its backend."""
    present = [entry for version in case.versions for entry in entries(case.directory / str(version))]
    if len(present) != 1 or not present[0].is_file():
        return None
    path = present[0]
    backend = next((backend for backend, suffix in _SUFFIX.items() if path.suffix.lower() == suffix), "")
    kind = _tree_kind(path)
    name = CANDIDATES[backend][0] if backend else kind.file_name if kind else ""
    return Fix(f"rename {path.name} to {name}", partial(treatment.move, path, path.with_name(name))) if name else None


class FilModelType(ModelCheck):
    """``model_type`` says another format than the file has."""

    name = "fil-model-type"
    title = "The parameter model_type does not say what the tree file is"
    cause = (
        "fil reads the file as model_type says, whatever is in it: JSON and UBJSON begin alike, and are not the same"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        if case.proto is None or "model_type" not in case.proto.parameters:
            return
        declared = str(case.proto.parameters["model_type"].string_value)
        for file in list(tree_files(case))[-1:]:
            if file.kind.value != declared.lower() and file.kind is not ModelType.XGBOOST:
                yield Seen(
                    case.config_path,
                    f"model_type is '{declared}', and {file.path.name} is {file.kind.description}",
                    f"write model_type: {file.kind.value}",
                    fix=config_fix(
                        f"write model_type: {file.kind.value}",
                        case.config_path,
                        [set_parameter(case.proto, "model_type", file.kind.value)],
                    ),
                )
