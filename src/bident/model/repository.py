"""Repository: what exists on disk. What is loaded is the lifecycle's business."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from bident.errors import Code, ServeError
from bident.model.folder import ModelFolder, ambiguous, check_name, is_hidden, is_text
from bident.model.hints import did_you_mean


@dataclass(frozen=True)
class Listing:
    """What the repositories held at one moment, and what of them could not be read.

    ``roots`` has the names found below each repository folder that could be read. ``unreadable``
    names entries of which nobody can tell whether they are models. ``problems`` is for the log.
    """

    roots: dict[Path, frozenset[str]] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of all models, sorted, each once."""
        return sorted(frozenset().union(*self.roots.values()))


class Repository:
    """One or more folders whose subfolders are models. Thread-safe: nothing of it changes."""

    def __init__(self, paths: list[Path], *, config_name: str = "", auto_complete: bool = True) -> None:
        """``config_name``: ``--model-config-name``. ``auto_complete`` False: config files are required."""
        self.paths = [Path(path) for path in paths]
        self._config_name = config_name
        self._auto_complete = auto_complete

    def names(self) -> Listing:
        """All models there are: one listing per repository path. Raises nothing."""
        roots: dict[Path, frozenset[str]] = {}
        unreadable: set[str] = set()
        problems: list[str] = []
        for path in self.paths:
            try:
                with os.scandir(path) as entries:
                    found = [entry for entry in entries if not is_hidden(entry.name)]
            except OSError as error:
                problems.append(f"cannot read model repository {path}: {error.strerror}; check --model-repository")
                continue
            roots[path] = frozenset(entry.name for entry in found if _is_model(entry, unreadable, problems))
        return Listing(roots, frozenset(unreadable), tuple(problems))

    def find(self, name: str) -> ModelFolder:
        """The folder of the model called ``name``: one file-system call per repository path.

        Raises ServeError when the name is malformed, unknown, or in several repositories.
        """
        check_name(name)
        places = [path / name for path in self.paths if _is_folder(path / name)]
        if not places:
            raise self._unknown(name)
        if len(places) > 1:
            raise ambiguous(name, places)
        return ModelFolder(name, places[0], self._config_name, self._auto_complete)

    def _unknown(self, name: str) -> ServeError:
        hint = did_you_mean(name, self.names().names) or "the repository holds no model"
        return ServeError(
            Code.INTERNAL,
            f"failed to load '{name}', failed to poll from model repository: no folder of that name; {hint}",
        )


def _is_model(entry: os.DirEntry[str], unreadable: set[str], problems: list[str]) -> bool:
    try:
        if not entry.is_dir():
            return False
    except OSError as error:
        unreadable.add(entry.name)
        problems.append(f"cannot read {entry.path}: {error.strerror}; left out")
        return False
    if not is_text(entry.name):
        problems.append(f"the name of the folder {entry.path!a} is not UTF-8; left out: rename it")
        return False
    return True


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # too long for the file system, or not encodable: no such folder
        return False
