"""Repository: what exists on disk. What is loaded is the lifecycle's business."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bident.errors import Code, ServeError, SettingsError, invalid_arg
from bident.model import near_miss
from bident.model.folder import BETWEEN, ModelFolder, ambiguous, check_name, is_hidden, is_text
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
    """One or more folders whose subfolders are models. Thread-safe: nothing of it changes.

    With ``namespacing`` each folder is a namespace: a name that several of them hold stands for several
    models, which are called ``<folder>::<name>``. Ensembles mean the one next to them. (Triton's clients have
    no way to say which they mean; here they use the long name.)
    """

    def __init__(
        self, paths: list[Path], *, config_name: str = "", auto_complete: bool = True, namespacing: bool = False
    ) -> None:
        """``config_name``: ``--model-config-name``. ``auto_complete`` False: config files are required.

        A path that is given twice is one repository, as it is to Triton.
        """
        self.paths = list(dict.fromkeys(Path(path) for path in paths))
        self._namespacing = namespacing
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
        if self._namespacing:
            often = Counter(name for names in roots.values() for name in names)
            for path, names in roots.items():
                roots[path] = frozenset(_qualified(path, name) if often[name] > 1 else name for name in names)
        return Listing(roots, frozenset(unreadable), tuple(problems))

    def find(self, name: str) -> ModelFolder:
        """The folder of the model called ``name``: one file-system call per repository path.

        Raises ServeError when the name is malformed, unknown, or in several repositories.
        """
        self.check_name(name)
        namespace, own_name = self._split(name)
        places = [namespace / own_name] if namespace and _is_folder(namespace / own_name) else self._places(name)
        if not places:
            raise self._unknown(name)
        if len(places) > 1:
            raise _unclear(name, self.meant_by(name)) if self._namespacing else ambiguous(name, places)
        return self._folder(name, places[0])

    def check_name(self, name: str) -> None:
        """Refuse what cannot be a model's name, with or without a namespace (ServeError)."""
        check_name(self._split(name)[1])

    def _split(self, name: str) -> tuple[Path | None, str]:
        """The namespace that ``name`` begins with, if it does, and the rest."""
        if self._namespacing:
            namespace, _, own_name = name.rpartition(BETWEEN)
            for path in self.paths:
                if str(path) == namespace:
                    return path, own_name
        return None, name

    def meant_by(self, name: str) -> list[str]:
        """What is called ``name``: itself, or, where several namespaces hold it, the model of each."""
        places = self._places(name) if self._namespacing else []
        return [_qualified(place.parent, name) for place in places] if len(places) > 1 else [name]

    def unclear(self, name: str, held: Iterable[frozenset[str]]) -> ServeError | None:
        """Triton's refusal of a name that several of the namespaces ``held`` have; None if it is none."""
        if not self._namespacing:
            return None
        keys = sorted(key for names in held for key in names if key.endswith(f"{BETWEEN}{name}"))
        return _unclear(name, keys) if len(keys) > 1 else None

    def _places(self, name: str) -> list[Path]:
        return [path / name for path in self.paths if _is_folder(path / name)]

    def _folder(self, name: str, place: Path) -> ModelFolder:
        if not self._namespacing:
            return ModelFolder(name, place, self._config_name, self._auto_complete)

        def beside(member: str) -> str:
            """The model that an ensemble in the same namespace calls ``member``."""
            own = _qualified(place.parent, member)
            return own if own in self.meant_by(member) else member

        return ModelFolder(
            name, place, self._config_name, self._auto_complete, namespace=str(place.parent), member=beside
        )

    def _unknown(self, name: str) -> ServeError:
        hint = did_you_mean(name, self.names().names) or "the repository holds no model"
        return ServeError(
            Code.INTERNAL,
            f"failed to load '{name}', failed to poll from model repository: no folder of that name; {hint}",
        )


def check_folders(paths: Iterable[Path]) -> None:
    """Raise SettingsError where one of ``--model-repository`` is no folder, or a model's own."""
    for path in paths:
        if not path.is_dir():
            what = "is not a folder" if path.exists() else "does not exist"
            raise SettingsError(f"--model-repository={path}: it {what}; name the folder that holds the model folders")
        if mistaken := near_miss.taken_for_repository(path):
            raise SettingsError(f"--model-repository={path}: {mistaken}")


def _qualified(path: Path, name: str) -> str:
    return f"{path}{BETWEEN}{name}"


def _unclear(name: str, keys: list[str]) -> ServeError:
    return invalid_arg(
        f"There are {len(keys)} identifiers of model '{name}' in global map, model namespace must be provided to "
        f"resolve ambiguity: ask for {' or '.join(map(repr, keys))}"
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
