"""XGBoost files that are too new for the treelite in a release of Triton."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from struct import unpack_from

import numpy as np

from bident.backends.fil.formats import ModelType
from bident.backends.fil.treelite_library import GtilSettings, TreeliteModel
from bident.doctor import treatment
from bident.doctor.check import Fix, Weight
from bident.doctor.models.case import Case, LooseFile, ModelCheck, Seen
from bident.doctor.models.config_edit import Step, edit, set_parameter
from bident.doctor.models.tree_file import TreeFile, tree_files
from bident.doctor.release import Release
from bident.errors import Code, ServeError

_PROBES = 64
_SURE = (3, 0)
"""XGBoost's files up to this version are read wherever treelite 4 is."""
_OURS = 4
"""The major version of the checkpoints that can be written here."""


class XgboostSchema(ModelCheck):
    """XGBoost's JSON and UBJSON change with its versions."""

    name = "xgboost-schema"
    title = "An XGBoost file is newer than the treelite of the Triton release that is to load it"
    of_files = True
    cause = (
        "XGBoost adds fields to its files with its releases (3.1: 'cats', and a list as base_score), and treelite "
        "refuses fields that it does not know: Provided JSON could not be parsed as XGBoost model. UBJSON is the same "
        "content in another encoding. Bident leaves out the new fields, and reads them all"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        target = case.target
        if target is None:
            return
        for file in tree_files(case):
            document = file.document()
            if document is None:
                continue
            problem, weight = _problem(file, _version(document.content.get("version")), target)
            if problem:
                yield Seen(
                    file.path,
                    problem,
                    _cure(target),
                    weight,
                    # A file by itself has no configuration to say what it has become.
                    fix=_fix(case) if target.treelite == _OURS and not isinstance(case, LooseFile) else None,
                )


def _version(written: object) -> tuple[int, ...]:
    """The version that a file says it was written by; empty where it says none."""
    numbers = tuple(part for part in written if type(part) is int) if isinstance(written, list) else ()
    return numbers if len(numbers) == 3 else ()


def _problem(file: TreeFile, written: tuple[int, ...], target: Release) -> tuple[str, Weight]:
    """What keeps ``target`` from reading the file, and how certain that is."""
    by = f"it was written by XGBoost {'.'.join(map(str, written))}"
    if file.kind is ModelType.XGBOOST_UBJ and not target.reads_ubjson:
        return f"it is UBJSON, which {target} does not read (24.10 and later do)", Weight.BROKEN
    if not written:
        return "", Weight.NOTE
    if target.xgboost is None:
        return f"{by}; whether {target} reads that is not known here" if written[:2] > _SURE else "", Weight.NOTE
    if written[:2] > target.xgboost:
        return f"{by}, and {target} reads files up to {'.'.join(map(str, target.xgboost))}", Weight.BROKEN
    return "", Weight.NOTE


def _cure(target: Release) -> str:
    if target.treelite == _OURS:
        return (
            "let --fix write a treelite checkpoint in its model folder ('bident add' makes one), or train and save "
            "again with XGBoost 3.0 or older, as JSON"
        )
    return (
        f"{target} reads checkpoints of treelite {target.treelite}, which cannot be written here (treelite {_OURS} is "
        "installed): train and save again with XGBoost 1.6, or take a newer Triton, 24.03 or later"
    )


def _fix(case: Case) -> Fix:
    return Fix(
        "write each version as checkpoint.tl (treelite 4), compare the answers, set model_type: treelite_checkpoint",
        partial(_convert, case),
    )


def _convert(case: Case) -> None:
    """Every version, since they share one configuration; the files they replace stay as ``NAME.bak``."""
    case = Case(case.directory, case.repository, case.target)  # another cure may have changed the files meanwhile
    files = [file for file in tree_files(case) if file.kind is not ModelType.TREELITE]
    contents = {file.path.with_name(ModelType.TREELITE.file_name): _checkpoint(file) for file in files}
    for path in contents:
        if path.exists():
            raise ServeError(Code.ALREADY_EXISTS, f"{path} exists; take it away, or serve it")
    try:
        for path, content in contents.items():
            treatment.replace_file(path, content)
        if files:
            kind = set_parameter(case.filled, "model_type", ModelType.TREELITE.value)
            edit(case.config_path, [kind, Step("default_model_filename")])
    except ServeError:
        for path in contents:
            path.unlink(missing_ok=True)
        raise
    for file in files:
        treatment.put_away(file.path)


def _checkpoint(file: TreeFile) -> bytes:
    """The file's trees as a checkpoint that gives the same answers. Raises ServeError."""
    trees = file.trees()
    content = trees.library.checkpoint()
    again = TreeliteModel.from_checkpoint(content)
    rows = np.random.default_rng(0).standard_normal((_PROBES, trees.library.features)).astype(np.float32)
    rows[::7, :] = np.nan
    settings = GtilSettings(1)
    if not np.array_equal(trees.library.predict(rows, settings), again.predict(rows, settings), equal_nan=True):
        raise ServeError(Code.INTERNAL, f"the checkpoint of {file.path} answers differently and was not written")
    return content


class TreeliteVersion(ModelCheck):
    """A checkpoint of another major version."""

    name = "treelite-version"
    title = "A treelite checkpoint is of a version that the server does not read"
    of_files = True
    cause = "A checkpoint is a dump of treelite's memory, and each major version lays it out anew"

    def look(self, case: Case) -> Iterator[Seen]:
        reads = case.target.treelite if case.target else _OURS
        for file in tree_files(case):
            if file.kind is not ModelType.TREELITE:
                continue
            major, minor, patch = unpack_from("<iii", file.data)
            # Treelite 4 reads the last of the third series, too; Bident checks the layout of the fourth alone.
            if major == reads or (case.target and reads == _OURS and (major, minor) == (3, 9)):
                continue
            yield Seen(
                file.path,
                f"it was written by treelite {major}.{minor}.{patch}; {case.target or 'Bident'} reads treelite {reads}",
                f"write it again from the original model: pip install treelite=={reads}.*, then model.serialize(path)",
            )
