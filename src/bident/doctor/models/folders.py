"""Folders that are not where, or not called what, a server looks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bident.doctor import treatment
from bident.doctor.check import Fix, Weight
from bident.doctor.models.case import CANDIDATES, MODEL_SUFFIXES, Case, ModelCheck, Seen, entries
from bident.errors import Code, ServeError
from bident.model.folder import CONFIG, version_of
from bident.model.near_miss import meant_for_config

_NEARLY_A_VERSION = re.compile(r"(?i:v|ver|version)?[ ._-]*0*(\d{1,9})(?:[._]\d+)*")
_WORDS = frozenset({"latest", "current", "stable", "prod", "production", "default", "model", "new"})
_USUAL = frozenset(name for names in CANDIDATES.values() for name in names)


class VersionFolders(ModelCheck):
    """``v1``, ``latest``, ``01``, or none."""

    name = "version-folders"
    title = "A model has no version folder, or one that is not called by a number"
    cause = (
        "Model files lie in folders called 1, 2, 3 and so on: digits alone, no zero in front. Others are not looked at"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        for entry in entries(case.directory):
            if entry.is_dir() and version_of(entry.name) is None:
                yield from self._folder(case, entry)
            elif entry.is_file() and not case.versions and _is_model_file(entry):
                target = case.directory / "1" / entry.name
                yield Seen(
                    entry,
                    "the model file lies beside the configuration, and there is no version folder",
                    f"move it to {target}",
                    fix=Fix(f"move it to {target}", partial(treatment.move, entry, target)),
                )
        if not case.versions and case.is_ensemble:
            yield Seen(
                case.directory,
                "the ensemble has no version folder",
                f"make the folder {case.directory / '1'}; it stays empty",
                cause="An ensemble has no model file, but a version, which its empty folder stands for",
                fix=Fix("make the folder 1", partial(treatment.make_folder, case.directory / "1")),
            )

    def _folder(self, case: Case, folder: Path) -> Iterator[Seen]:
        found = _NEARLY_A_VERSION.fullmatch(folder.name)
        if _holds_versions(folder) and _is_in_between(case, folder):
            yield Seen(
                folder,
                "it holds version folders, one level too deep",
                f"move what is in {folder} to {case.directory}",
                cause="An archive was unpacked into a folder of its own name",
                fix=Fix("move what is in it up", partial(_move_up, folder)),
            )
        elif (found or folder.name.lower() in _WORDS) and any(map(_is_model_file, entries(folder))):
            number = int(found[1]) if found else max(case.versions, default=0) + 1
            target = case.directory / str(number)
            free = number > 0 and not target.exists()
            yield Seen(
                folder,
                f"'{folder.name}' holds a model file and is no version folder",
                f"rename it to {number if free else 'a number'}",
                Weight.RISK if case.versions else Weight.BROKEN,
                fix=Fix(f"rename it to {number}", partial(treatment.move, folder, target)) if free else None,
            )


def _holds_versions(folder: Path) -> bool:
    return any(version_of(entry.name) is not None and entry.is_dir() for entry in entries(folder))


def _is_in_between(case: Case, folder: Path) -> bool:
    """Whether ``folder`` is one level too many, and not a model of its own, in a repository."""
    return not case.versions and (folder.name == case.name or case.config_text is not None)


def _is_model_file(path: Path) -> bool:
    return path.is_file() and (path.name in _USUAL or path.suffix.lower() in MODEL_SUFFIXES)


def _move_up(folder: Path) -> None:
    """All of it or nothing."""
    if folder.is_symlink():
        raise ServeError(Code.UNAVAILABLE, f"{folder} is a link; what it leads to is not moved")
    targets = {entry: folder.parent / entry.name for entry in entries(folder)}
    for entry, target in targets.items():
        if target.exists():
            raise ServeError(Code.ALREADY_EXISTS, f"{entry} cannot become {target}: that exists; compare the two")
    for entry, target in targets.items():
        treatment.move(entry, target)


class ConfigPlace(ModelCheck):
    """The configuration lies where it is not read."""

    name = "config-place"
    title = "config.pbtxt lies in the version folder, or is called something else"
    cause = "The configuration belongs to the model and lies in its folder, beside the version folders, as config.pbtxt"

    def look(self, case: Case) -> Iterator[Seen]:
        target = case.config_path
        for name in meant_for_config(case.directory)[:1]:
            yield Seen(
                case.directory / name,
                f"there is '{name}' and no {CONFIG}",
                f"rename it to {CONFIG}",
                fix=Fix(f"rename it to {CONFIG}", partial(treatment.move, case.directory / name, target)),
            )
        for folder in entries(case.directory):
            misplaced = folder / CONFIG
            if not (folder.is_dir() and misplaced.is_file()) or _holds_versions(folder):
                continue  # that is a model folder, in a repository or one level too deep
            absent = not target.exists()
            yield Seen(
                misplaced,
                f"it lies in '{folder.name}', where it is not read",
                f"move it to {target}" if absent else f"delete it; {target} is the one that is read",
                Weight.BROKEN if absent else Weight.RISK,
                fix=Fix(f"move it to {target}", partial(treatment.move, misplaced, target)) if absent else None,
            )
