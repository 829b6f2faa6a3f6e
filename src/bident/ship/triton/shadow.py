"""A shadow repository: the models of a repository as a Triton can load them that lacks some of their backends.

It is made of links. A model that the Triton has the backend for is a link to its own folder. Any other is a link
to a folder made here: the same tensors, batching and labels, but ``backend: "python"`` and Bident's backend inside
(``shim/model.py``). Links are replaced, never changed, so Triton sees one state of a model or the other.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import text_format

from bident.backends.discovery import Backends
from bident.engine.loader import Loader, is_ensemble
from bident.errors import ServeError
from bident.model import autofill
from bident.model.folder import CONFIG, ModelFolder
from bident.model.proto import ModelConfigProto, pb
from bident.model.repository import Repository

logger = logging.getLogger("bident.ship")

_SHIM = Path(__file__).parent / "shim" / "model.py"
_NO_TRITON_READS = frozenset({CONFIG, "configs"})
"""Entries of a model's folder that a generated config takes the place of."""


@dataclass(frozen=True)
class Reading:
    """How configs are read: as the server's settings say. ``options`` are ``--backend-config``'s."""

    config_name: str = ""
    auto_complete: bool = True
    options: Mapping[str, Mapping[str, str]] | None = None


class Shadow:
    """The shadows of several repositories, below one folder."""

    def __init__(self, repositories: list[Path], folder: Path, backends: list[str], reading: Reading) -> None:
        """``folder``: an empty one. ``backends``: those that the Triton has."""
        self._mirrors = [
            _Mirror(path.absolute(), folder / str(number), frozenset(backends), reading)
            for number, path in enumerate(repositories)
        ]

    @property
    def paths(self) -> list[Path]:
        """The repositories to give to Triton, in the order of the originals."""
        return [mirror.path for mirror in self._mirrors]

    def refresh(self) -> list[str]:
        """Follow what has changed in the originals; the names of those models. Raises OSError where disk is full."""
        return [name for mirror in self._mirrors for name in mirror.refresh()]

    def stood_in_for(self) -> dict[str, str]:
        """The models that run on Bident's backends, and which."""
        return {name: backend for mirror in self._mirrors for name, backend in mirror.shims.items()}


class _Mirror:
    """The shadow of one repository: ``models`` holds the links, ``made`` the folders some of them lead to."""

    def __init__(self, original: Path, folder: Path, backends: frozenset[str], reading: Reading) -> None:
        self.path = folder / "models"
        self.shims: dict[str, str] = {}
        self._made = folder / "made"
        self._repository = Repository([original])
        self._original = original
        self._backends = backends
        self._reading = reading
        self._seen: dict[str, Hashable] = {}
        self._count = 0
        for needed in (self.path, self._made):
            needed.mkdir(parents=True)

    def refresh(self) -> list[str]:
        listing = self._repository.names()
        if self._original not in listing.roots:  # it cannot be read right now: nothing is known to have gone
            return []
        names = listing.roots[self._original]
        changed = [name for name in self._seen if name not in names and name not in listing.unreadable]
        for name in changed:
            del self._seen[name]
            self.shims.pop(name, None)
            (self.path / name).unlink(missing_ok=True)
            self._discard(name)
        for name in sorted(names):
            folder = self._folder(name)
            mark = folder.fingerprint()
            if self._seen.get(name) != mark:
                self._place(folder)
                self._seen[name] = mark
                changed.append(name)
        return changed

    def _folder(self, name: str) -> ModelFolder:
        reading = self._reading
        return ModelFolder(name, self._original / name, reading.config_name, reading.auto_complete)

    def _place(self, folder: ModelFolder) -> None:
        backend = _backend_of(folder)
        old = self._target(folder.name)
        if backend in ("", *self._backends):
            self.shims.pop(folder.name, None)
            target = folder.directory
        else:
            self.shims[folder.name] = backend
            self._count += 1
            target = self._made / f"{folder.name}.{self._count}"
            try:
                write_shim(folder, self._reading, target)
            except OSError:
                shutil.rmtree(target, ignore_errors=True)
                raise
        fresh = self._made / ".link"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target, target_is_directory=True)
        fresh.replace(self.path / folder.name)
        self._discard(folder.name, keep={target, old})

    def _target(self, name: str) -> Path | None:
        try:
            return (self.path / name).readlink()
        except OSError:
            return None

    def _discard(self, name: str, keep: set[Path | None] | None = None) -> None:
        """Delete older folders made for ``name``; the last one may still be loading."""
        for path in self._made.iterdir():
            if path.name.rpartition(".")[0] == name and path not in (keep or ()):
                shutil.rmtree(path, ignore_errors=True)


def _backend_of(folder: ModelFolder) -> str:
    """The backend that a model needs; empty for an ensemble, and where nothing tells, as Triton will say."""
    try:
        proto = folder.raw_config()
        autofill.fill_backend(proto, folder.directory, folder.versions())
    except ServeError:
        return ""
    return "" if is_ensemble(proto) else proto.backend


def write_shim(folder: ModelFolder, reading: Reading, target: Path) -> None:
    """Make the model folder ``target``, in which the Python backend runs the model of ``folder``.

    A model that cannot be loaded gets one too: loading it then fails with the reason.
    """
    options = {name: dict(pairs) for name, pairs in (reading.options or {}).items()}
    loader = Loader(Backends(options), auto_complete=reading.auto_complete)
    try:
        config = shim_config(loader.configure(folder)[0].to_proto())
    except ServeError as error:
        logger.warning("model '%s' will not load: %s", folder.name, error)
        config = _unloadable(folder.name)
    target.mkdir()
    (target / CONFIG).write_text(text_format.MessageToString(config), encoding="utf-8")
    source = {
        "directory": str(folder.directory),
        "config_name": reading.config_name,
        "auto_complete": reading.auto_complete,
        "options": options,
    }
    versions = {str(version) for version in _versions(folder)}
    for version in versions:
        (target / version).mkdir()
        shutil.copyfile(_SHIM, target / version / "model.py")
        (target / version / "model.json").write_text(json.dumps(source, indent=2) + "\n", encoding="utf-8")
    with contextlib.suppress(OSError):  # a folder that cannot be listed is said to be so when it is loaded
        for entry in folder.directory.iterdir():
            if entry.name not in versions | _NO_TRITON_READS and not entry.name.startswith("."):
                (target / entry.name).symlink_to(entry)


def _versions(folder: ModelFolder) -> list[int]:
    try:
        return folder.versions()
    except ServeError:
        return []


def shim_config(proto: ModelConfigProto) -> ModelConfigProto:
    """A complete config (changed in place) for the Python backend: all that clients see stays as it is."""
    proto.backend = "python"
    for field in ("platform", "runtime", "default_model_filename", "optimization"):
        proto.ClearField(field)
    for group in proto.instance_group:
        group.kind = pb.ModelInstanceGroup.KIND_CPU
        group.ClearField("gpus")
        group.ClearField("secondary_devices")
    return proto


def _unloadable(name: str) -> ModelConfigProto:
    """A config that Triton takes for a model that will say itself why it does not load."""
    return pb.ModelConfig(
        name=name,
        backend="python",
        input=[pb.ModelInput(name="IN", data_type=pb.TYPE_FP32, dims=[1])],
        output=[pb.ModelOutput(name="OUT", data_type=pb.TYPE_FP32, dims=[1])],
        instance_group=[pb.ModelInstanceGroup(kind=pb.ModelInstanceGroup.KIND_CPU)],
    )
