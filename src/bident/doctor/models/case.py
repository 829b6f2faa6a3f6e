"""A model as the doctor reads it, and what all checks of models share. Nothing of it is executed."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from bident.backends.base import ModelFiles
from bident.backends.fil.formats import ModelType
from bident.doctor.check import Check, Finding, Fix, Patient, Weight
from bident.doctor.release import Release, read_target
from bident.errors import ConfigError, ServeError
from bident.model import autofill, near_miss, pbtxt
from bident.model.config import ModelConfig
from bident.model.files import open_file, read_file
from bident.model.folder import CONFIG, ModelFolder, is_hidden, is_text, version_of
from bident.model.proto import ModelConfigProto, pb

_HEAD_BYTES = 4096
CANDIDATES = {
    "onnxruntime": ("model.onnx",),
    "python": ("model.py",),
    "fil": tuple(kind.file_name for kind in ModelType),
}
"""How a model file is called where its configuration names none, by backend."""

_TREES = re.compile(rb'\s*\{\s*"(?:learner|version|Config)"|\{[LlIUi].{1,8}learner|tree\r?\nversion=v', re.DOTALL)
_BACKENDS = {".onnx": "onnxruntime", ".py": "python", ".ubj": "fil", ".tl": "fil"}
MODEL_SUFFIXES = near_miss.MODEL_SUFFIXES | {".ort", ".gguf", ".graphdef"}
"""How names of model files end."""


@dataclass(frozen=True)
class Case:
    """One model folder. ``repository`` is where its neighbours lie."""

    directory: Path
    repository: Path
    target: Release | None = None

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def config_path(self) -> Path:
        return self.directory / CONFIG

    @cached_property
    def config_text(self) -> bytes | None:
        """The configuration as written; None where there is no legible file."""
        try:
            return read_file(self.config_path)
        except OSError:
            return None

    @cached_property
    def parsed(self) -> tuple[ModelConfigProto | None, str]:
        """The configuration as a message, or None and what is wrong with its text. Without a file, an empty one."""
        if self.config_text is None:
            return pb.ModelConfig(), ""
        try:
            return pbtxt.parse(self.config_text, str(self.config_path)), ""
        except ConfigError as error:
            return None, error.message

    @property
    def proto(self) -> ModelConfigProto | None:
        """The configuration as written; None where it cannot be parsed."""
        return self.parsed[0]

    @cached_property
    def versions(self) -> list[int]:
        """Its version folders, ascending."""
        try:
            return ModelFolder(self.name, self.directory).versions()
        except ServeError:
            return []

    @cached_property
    def filling(self) -> tuple[ModelConfigProto, str]:
        """The configuration with what its files tell about the backend, and why they tell nothing if so."""
        message = pb.ModelConfig()
        if self.proto is not None:
            message.CopyFrom(self.proto)
        try:
            autofill.fill_backend(message, self.directory, self.versions)
        except ConfigError as error:
            message.name = message.name or self.name
            return message, error.message
        return message, ""

    @property
    def filled(self) -> ModelConfigProto:
        """The configuration with what its files tell about the backend; as written where they tell nothing."""
        return self.filling[0]

    @property
    def backend(self) -> str:
        """The backend by configuration or files; empty where neither tells."""
        return str(self.filled.backend)

    @property
    def is_ensemble(self) -> bool:
        return bool(self.filled.platform == "ensemble" or self.filled.HasField("ensemble_scheduling"))

    @cached_property
    def config(self) -> ModelConfig | None:
        """:attr:`filled` as backends read it; None where a tensor has no datatype."""
        try:
            return ModelConfig.from_proto(self.filled)
        except ConfigError:
            return None

    def model_files(self) -> Iterator[Path]:
        """The model file of each version, where it is there under the name that is looked for."""
        for version in self.versions:
            path = self.model_file(version)
            if path is not None:
                yield path

    def model_file(self, version: int) -> Path | None:
        """The model file of ``version``; None where there is none."""
        declared = str(self.filled.default_model_filename)
        config = self.config or ModelConfig.from_proto(pb.ModelConfig(name=self.name, default_model_filename=declared))
        names = CANDIDATES.get(self.backend, ())
        if not declared and not names:
            return None
        try:
            path = ModelFiles(self.directory, version).model_file(config, *names)
        except (ConfigError, OSError, ValueError):
            return self._only_tree_file(version, declared)
        inner = path / path.name
        return inner if path.is_dir() and inner.is_file() else path if path.is_file() else None

    def _only_tree_file(self, version: int, declared: str) -> Path | None:
        """The fil backend takes the only file there is, whatever its name."""
        files = entries(self.directory / str(version))
        return files[0] if self.backend == "fil" and not declared and len(files) == 1 and files[0].is_file() else None

    def files(self) -> Iterator[Path]:
        """Every file in the model's folder and its version folders, one level deep each."""
        yield from (path for path in self._inside() if path.is_file())

    def strangers(self) -> Iterator[Path]:
        """What lies where files do and is neither file nor folder: pipes, devices, links that lead nowhere."""
        yield from (path for path in self._inside() if not path.is_file() and not path.is_dir())

    def _inside(self) -> Iterator[Path]:
        for entry in entries(self.directory):
            yield entry
            if entry.is_dir() and not entry.is_symlink():
                yield from entries(entry)


@dataclass(frozen=True)
class LooseFile(Case):
    """A model file by itself: no folder, no configuration, no versions."""

    path: Path = Path()

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def config_text(self) -> bytes | None:
        return None

    @cached_property
    def versions(self) -> list[int]:
        return []

    @cached_property
    def filling(self) -> tuple[ModelConfigProto, str]:
        """Only the backend: by what the file looks like, else by the end of its name."""
        by_name = _BACKENDS.get(self.path.suffix.lower(), "")
        return pb.ModelConfig(name=self.name, backend="fil" if _TREES.match(head(self.path)) else by_name), ""

    def model_files(self) -> Iterator[Path]:
        if self.backend:
            yield self.path

    def _inside(self) -> Iterator[Path]:
        yield self.path


@dataclass(frozen=True)
class Seen:
    """What a check of models has to say; :class:`ModelCheck` makes a finding of it."""

    where: Path | str
    seen: str
    cure: str
    weight: Weight = Weight.BROKEN
    cause: str = ""
    """Where it differs from the check's own."""
    fix: Fix | None = field(default=None, compare=False)


class ModelCheck(Check):
    """A pitfall of one model."""

    reads_path: ClassVar[bool] = True
    of_files: ClassVar[bool] = False
    """Whether it can judge a model file by itself, without its folder and configuration."""
    cause: ClassVar[str]
    """Why it happens, in a sentence or two."""

    @abstractmethod
    def look(self, case: Case) -> Iterator[Seen]:
        """Look for it in one model."""

    def examine(self, patient: Patient) -> Iterator[Finding]:
        for case in cases(patient):
            yield from self.findings(case)

    def findings(self, case: Case) -> Iterator[Finding]:
        """What :meth:`look` sees, as findings."""
        for seen in self.look(case) if self.of_files or not isinstance(case, LooseFile) else ():
            yield Finding(
                self.name, seen.weight, str(seen.where), seen.seen, seen.cause or self.cause, seen.cure, seen.fix
            )


def cases(patient: Patient) -> Iterator[Case]:
    """The models of ``patient``, by name."""
    target = read_target(patient.target)
    if patient.model is not None:
        folder = patient.model.parent
        if patient.model.is_dir():
            yield Case(patient.model, patient.repository or folder, target)
        else:
            yield LooseFile(folder, folder, target, patient.model)
        return
    if patient.repository is None:
        return
    for entry in entries(patient.repository):
        if entry.is_dir() and version_of(entry.name) is None and not _is_nested_repository(entry):
            yield Case(entry, patient.repository, target)


def _is_nested_repository(folder: Path) -> bool:
    """A folder of models, and not one model that was unpacked into a folder of its own name."""
    return holds_models(folder) and not (folder / folder.name).is_dir()


def entries(directory: Path) -> list[Path]:
    """What lies in ``directory``, hidden names left out, sorted; nothing where it cannot be read."""
    try:
        return sorted(
            entry
            for entry in directory.iterdir()
            if not is_hidden(entry.name) and is_text(entry.name) and not _is_backup(entry.name)
        )
    except OSError:
        return []


def holds_models(folder: Path) -> bool:
    """Whether subfolders of ``folder`` are model folders, and it is none itself: a repository."""
    inside = entries(folder)
    if any(entry.name == CONFIG or version_of(entry.name) is not None for entry in inside):
        return False
    return any((entry / CONFIG).is_file() for entry in inside if entry.is_dir())


def _is_backup(name: str) -> bool:
    """What the doctor has put away is no longer looked at."""
    _, dot, end = name.rpartition(".")
    return bool(dot) and end.rstrip("0123456789") == "bak"


def head(path: Path) -> bytes:
    """How a file begins; nothing where it is no regular file or cannot be read."""
    try:
        with open_file(path) as file:
            return file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return b""
