"""Folders that are taken for a repository, and files that lie loose in one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bident.doctor import treatment
from bident.doctor.check import Check, Finding, Fix, Patient, Weight
from bident.doctor.models.case import MODEL_SUFFIXES, entries, head, holds_models
from bident.doctor.models.contents import GGUF, pulling
from bident.errors import ConfigError
from bident.model import pbtxt
from bident.model.files import read_file
from bident.model.folder import CONFIG, version_of
from bident.model.near_miss import taken_for_repository


class RepositoryShape(Check):
    """One level too high, or too low."""

    name = "repository-shape"
    title = "The repository is a model folder, a model folder is a repository, or models lie loose in it"
    reads_path = True
    _cause = "A repository holds one folder for each model, and that folder the configuration and the version folders"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        if patient.repository is None or patient.model is not None:
            return
        told = taken_for_repository(patient.repository)
        if told:
            yield self._finding(patient.repository, told, f"--model-repository={patient.repository.absolute().parent}")
            return
        yield from self._content(patient.repository)

    def _content(self, repository: Path) -> Iterator[Finding]:
        found = entries(repository)
        if not any(entry.is_dir() for entry in found):
            yield self._finding(repository, "it holds no model folder", "bident add MODEL_FILE", Weight.NOTE)
        for entry in found:
            if entry.name == CONFIG:
                yield self._loose_config(entry)
            elif entry.is_file():
                yield from self._loose(entry)
            elif entry.is_dir() and version_of(entry.name) is not None:
                yield self._finding(
                    entry,
                    "a version folder lies where model folders are expected",
                    f"put it, with its config.pbtxt, into a folder called as the model: {repository}/NAME/{entry.name}",
                )
            elif entry.is_dir() and holds_models(entry):
                yield self._finding(
                    entry,
                    "it holds model folders: it is a repository inside the repository",
                    f"serve it: --model-repository={entry} ('bident doctor {entry}' examines it), or move its folders "
                    f"to {repository}",
                )

    def _loose(self, path: Path) -> Iterator[Finding]:
        if path.suffix.lower() == ".gguf" or head(path).startswith(GGUF):
            yield self._finding(path, "it is a GGUF model, which the text engine serves", pulling(path, path.stem))
        elif path.suffix.lower() in MODEL_SUFFIXES:
            yield self._finding(path, "a model file lies loose, and is not served", f"bident add {path}", Weight.RISK)

    def _loose_config(self, path: Path) -> Finding:
        """It says whose it is, if anything does."""
        try:
            name = str(pbtxt.parse(read_file(path), str(path)).name)
        except (ConfigError, OSError):
            name = ""
        target = path.parent / name / CONFIG
        belongs = bool(name) and target.parent.is_dir() and not target.exists()
        return self._finding(
            path,
            "a configuration lies in the repository itself, where none is read",
            f"move it to {target}" if belongs else "move it into the folder of its model",
            fix=Fix(f"move it to {target}", partial(treatment.move, path, target)) if belongs else None,
        )

    def _finding(
        self, where: Path, seen: str, cure: str, weight: Weight = Weight.BROKEN, fix: Fix | None = None
    ) -> Finding:
        return Finding(self.name, weight, str(where), seen, self._cause, cure, fix)
