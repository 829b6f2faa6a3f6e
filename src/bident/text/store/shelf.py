"""One folder of models: a store in Ollama's layout, or the ``.gguf`` files of a folder."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Hashable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from bident.errors import ServeError
from bident.text.capabilities import capabilities_of, parameter_size
from bident.text.gguf import GgufFacts, read_facts
from bident.text.gguf_header import MAGIC
from bident.text.model import Details, TextModel
from bident.text.names import ModelName
from bident.text.store.blobs import blob_name
from bident.text.store.manifests import Manifest, manifest_path, read_manifest, stored_names
from bident.text.store.reading import read_model

_LATER_PART = re.compile(r"-(?!0*1-of-)\d+-of-\d+$")
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


class Shelf(Protocol):
    """Where models are looked for. All methods block for file access and may be called from several threads."""

    read_only: bool

    def find(self, name: ModelName) -> TextModel | None:
        """The model of that name, in either case."""

    def models(self) -> Iterator[TextModel]:
        """Every model, in the order of their names."""


class Remembered:
    """Models by where they are, as long as what they were read from does not change."""

    def __init__(self) -> None:
        self._kept: dict[Path, tuple[Hashable, TextModel | None]] = {}
        self._lock = threading.Lock()

    def get(self, path: Path, read: Callable[[], TextModel | None]) -> TextModel | None:
        """What was read from ``path`` last time, or ``read`` now."""
        own = _mark(path)
        kept = self._kept.get(path)
        if kept is not None and own is not None and kept[0] == (own, _weights_mark(kept[1])):
            return kept[1]
        model = read()
        with self._lock:
            if own is None or (model is not None and model.fault):  # read again: it may have been mended
                self._kept.pop(path, None)
            else:
                self._kept[path] = ((own, _weights_mark(model)), model)
        return model


class LibraryShelf:
    """A folder with ``manifests`` and ``blobs``: our own store, or an Ollama's, which is only read."""

    def __init__(self, root: Path, *, read_only: bool) -> None:
        self.root = root
        self.read_only = read_only
        self._remembered = Remembered()

    def blob_path(self, digest: str) -> Path:
        return self.root / "blobs" / blob_name(digest)

    def find_manifest(self, name: ModelName) -> tuple[ModelName, Path] | None:
        """The manifest of a name in either case, with the name in the case it has on the disk."""
        path = manifest_path(self.root, name)
        if path.is_file():
            return name, path
        return next(((each, at) for each, at in stored_names(self.root) if each.key == name.key), None)

    def manifest_of(self, name: ModelName) -> tuple[ModelName, Manifest] | None:
        """What a name stands for now, with the name as it is spelled. Raises MalformedError, OSError."""
        found = self.find_manifest(name)
        try:
            return (found[0], read_manifest(found[1])) if found else None
        except FileNotFoundError:  # removed meanwhile
            return None

    def find(self, name: ModelName) -> TextModel | None:
        found = self.find_manifest(name)
        return self._read(*found) if found else None

    def models(self) -> Iterator[TextModel]:
        for name, path in stored_names(self.root):
            model = self._read(name, path)
            if model is not None:
                yield model

    def _read(self, name: ModelName, path: Path) -> TextModel | None:
        return self._remembered.get(path, lambda: read_model(name, path, self.blob_path, read_only=self.read_only))


class FileShelf:
    """A ``.gguf`` file, or the ones in a folder: models called as their files are."""

    read_only = True

    def __init__(self, place: Path) -> None:
        self._place = place
        self._remembered = Remembered()

    def find(self, name: ModelName) -> TextModel | None:
        return next((self._read(each, path) for each, path in self._files() if each.key == name.key), None)

    def models(self) -> Iterator[TextModel]:
        for name, path in self._files():
            model = self._read(name, path)
            if model is not None:
                yield model

    def _files(self) -> Iterator[tuple[ModelName, Path]]:
        paths = [self._place] if self._place.is_file() else sorted(self._place.glob("*.gguf"))
        for path in paths:
            if path.is_file() and not _LATER_PART.search(path.stem) and "mmproj" not in path.name.lower():
                name = name_of_file(path)
                if name is not None:
                    yield name, path.absolute()

    def _read(self, name: ModelName, path: Path) -> TextModel | None:
        return self._remembered.get(path, lambda: _bare_model(name, path))


def name_of_file(path: Path) -> ModelName | None:
    """What the model in a file is called: as the file without its ending, odd characters made into dashes."""
    stem = path.name[: -len(path.suffix)] if path.suffix.lower() == ".gguf" else path.name
    try:
        return ModelName.parse(_NO_NAME.sub("-", stem).strip("-.")[:80])
    except ServeError:
        return None


def is_gguf(path: Path) -> bool:
    """Whether the file begins as a GGUF file does. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _bare_model(name: ModelName, path: Path) -> TextModel | None:
    try:
        status = path.stat()
    except OSError:
        return None
    fault, facts = "", GgufFacts()
    try:
        facts = read_facts(path)
        if facts.kind != "model":
            return None
    except (ServeError, OSError) as error:
        fault = str(error)
    projector = _projector_beside(path)
    identity = f"{path}\0{status.st_size}\0{status.st_mtime_ns}"
    return TextModel(
        name=name,
        digest=hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest(),
        size=status.st_size,
        modified_at=datetime.fromtimestamp(status.st_mtime, timezone.utc),
        weights=path,
        facts=facts,
        projector=projector,
        details=Details(
            family=facts.architecture,
            families=(facts.architecture,) if facts.architecture else (),
            parameter_size=parameter_size(facts.parameter_count),
            quantization_level=facts.quantization,
        ),
        capabilities=frozenset() if fault else capabilities_of(facts, None, projector is not None),
        read_only=True,
        fault=fault,
    )


def _projector_beside(path: Path) -> Path | None:
    """``mmproj-<file>`` or ``<stem>.mmproj.gguf`` next to the weights, as vision models are published."""
    for beside in (path.with_name(f"mmproj-{path.name}"), path.with_name(f"{path.stem}.mmproj.gguf")):
        if beside.is_file():
            return beside
    return None


def _mark(path: Path) -> Hashable | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _weights_mark(model: TextModel | None) -> Hashable | None:
    return _mark(model.weights) if model else None
