"""Repository: what exists on disk. What is loaded is the lifecycle's business."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bident.errors import Code, ServeError
from bident.model.folder import ModelFolder, ambiguous, check_name
from bident.model.hints import did_you_mean


class Repository:
    """One or more folders whose subfolders are models."""

    def __init__(self, paths: list[Path], *, config_name: str = "", auto_complete: bool = True) -> None:
        """``config_name``: ``--model-config-name``. ``auto_complete`` False: config files are required."""
        self.paths = [Path(path) for path in paths]
        self.problems: list[str] = []
        """What :meth:`names` could not read the last time, in words for the log."""
        self._config_name = config_name
        self._auto_complete = auto_complete

    def names(self) -> list[str]:
        """Names of all models, sorted, each once. Unreadable places go to :attr:`problems`."""
        self.problems = []
        return sorted({name for path in self.paths for name in self._names_in(path)})

    def find(self, name: str) -> ModelFolder:
        """The folder of the model called ``name``: one file-system call per repository path.

        Raises ServeError when the name is malformed, unknown, or in several repositories.
        """
        check_name(name)
        places = [] if _ignored(name) else [path / name for path in self.paths if _is_folder(path / name)]
        if not places:
            raise self._unknown(name)
        if len(places) > 1:
            raise ambiguous(name, places)
        return ModelFolder(name, places[0], self._config_name, self._auto_complete)

    def holds(self, name: str) -> bool:
        """Whether there is a folder for a model of that name: one file-system call per path. Raises nothing."""
        try:
            check_name(name)
        except ServeError:
            return False
        return not _ignored(name) and any(_is_folder(path / name) for path in self.paths)

    def check_name(self, name: str) -> None:
        """Refuse a name that is empty or could lead out of the repository (ServeError)."""
        check_name(name)

    def _names_in(self, path: Path) -> Iterator[str]:
        try:
            entries = os.scandir(path)
        except OSError as error:
            self.problems.append(f"cannot read model repository {path}: {error.strerror}; check --model-repository")
            return
        with entries:
            for entry in entries:
                if not _ignored(entry.name) and self._is_model(entry):
                    yield entry.name

    def _is_model(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.is_dir()
        except OSError as error:
            self.problems.append(f"cannot read {entry.path}: {error.strerror}; left out")
            return False

    def _unknown(self, name: str) -> ServeError:
        known = self.names()
        hint = did_you_mean(name, known) or "the repository holds no model"
        return ServeError(
            Code.INTERNAL,
            f"failed to load '{name}', failed to poll from model repository: no folder of that name; {hint}",
        )


def _ignored(name: str) -> bool:
    """Hidden folders (``.git``, ``.ipynb_checkpoints``, ``..data``) and what fsck leaves are no models."""
    return name.startswith(".") or name == "lost+found"


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # too long for the file system, or not encodable: no such folder
        return False
