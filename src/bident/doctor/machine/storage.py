"""Folders that models are kept in: full, or gone tomorrow."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bident.doctor.check import Finding, Patient
from bident.doctor.machine.mounts import IN_MEMORY, LAYERS, Mount, Mounts, mount_of, mounts_here, nearest
from bident.doctor.machine.surroundings import MachineCheck, Surroundings

_GIBIBYTE = 1 << 30
_FULL = 100 << 20
"""With less than this, logs and temporary files fail as well."""
_NEARLY_FULL = 2 * _GIBIBYTE
_NOTEBOOKS = {
    "COLAB_RELEASE_TAG": ("Colab", "/content/drive"),
    "KAGGLE_KERNEL_RUN_TYPE": ("Kaggle", "/kaggle/working"),
    "BINDER_SERVICE_HOST": ("Binder", ""),
}
"""Notebooks whose disks are emptied, by a variable they set; the folder of each that stays, where there is one."""


def _folders(here: Surroundings, patient: Patient) -> list[tuple[str, Path, str]]:
    """What is kept, where, and the variable that moves it."""
    from bident.text.store.library import DEFAULT_ROOT  # it brings an HTTP client along

    tensor, text = here.settings()
    kept = [("model repository", path, "BIDENT_MODEL_REPOSITORY") for path in tensor.model_repository]
    if patient.repository:
        kept.append(("model repository", patient.repository, "BIDENT_MODEL_REPOSITORY"))
    if tensor.model_cache_directory:
        kept.append(("cache of models", tensor.model_cache_directory, "BIDENT_MODEL_CACHE_DIRECTORY"))
    kept.append(("text models", text.models or DEFAULT_ROOT, "BIDENT_TEXT_MODELS"))
    if home := here.environ.get("HF_HOME"):
        kept.append(("Hugging Face cache", Path(home), "HF_HOME"))
    return [(what, path if path.is_absolute() else _whole(here, path), variable) for what, path, variable in kept]


def _whole(here: Surroundings, path: Path) -> Path:
    try:
        return here.directory.absolute() / path.expanduser()
    except RuntimeError:  # a ~ and no home folder
        return here.directory.absolute() / path


def _free(path: Path) -> int:
    return shutil.disk_usage(path).free


class DiskSpace(MachineCheck):
    """Room for models that are pulled, built or unpacked."""

    name = "disk-space"
    title = "The disk that models are kept on is nearly full"

    def __init__(self, surroundings: Surroundings | None = None, free: Callable[[Path], int] = _free) -> None:
        super().__init__(surroundings)
        self._free = free

    def examine(self, patient: Patient) -> Iterator[Finding]:
        seen: set[Path] = set()
        for what, path, variable in _folders(self._here, patient):
            try:
                there = nearest(path)
                free = self._free(there)
            except OSError:
                continue
            if free < _NEARLY_FULL and there not in seen:
                seen.add(there)
                report = self._broken if free < _FULL else self._risk
                yield report(
                    path,
                    f"{free / _GIBIBYTE:.2f} GiB are free for the {what}",
                    "weights are large: one language model takes one to several GiB, and is written twice while it "
                    "is fetched",
                    f"remove models (bident rm NAME; the folder of a tensor model), or move it to another disk with "
                    f"{variable}",
                )


class ModelCache(MachineCheck):
    """Weights that are fetched anew after every restart."""

    name = "model-cache"
    title = "Models are kept where a restart removes them"

    def __init__(self, surroundings: Surroundings | None = None, mounts: Mounts = mounts_here) -> None:
        super().__init__(surroundings)
        self._mounts = mounts

    def examine(self, patient: Patient) -> Iterator[Finding]:
        mounts = list(self._mounts())
        for what, path, variable in dict.fromkeys(_folders(self._here, patient)):
            if cause := self._cause(path, mount_of(path, mounts)):
                yield self._risk(
                    path,
                    f"the {what} will not be there after a restart",
                    cause,
                    f"set {variable} to a folder that stays: a mounted disk or volume",
                )

    def _cause(self, path: Path, mount: Mount | None) -> str:
        """Why a restart removes ``path``, which is on ``mount``; empty where it does not."""
        if mount and mount.kind in IN_MEMORY:
            return f"{mount.point} is a {mount.kind}: it is memory, and is empty after a restart"
        if mount and mount.kind in LAYERS:
            return f"{mount.point} is a layer of this container ({mount.kind}), and goes with the container"
        for variable, (name, kept) in _NOTEBOOKS.items():
            if self._here.environ.get(variable) and not (kept and path.is_relative_to(kept)):
                return f"{name} gives a notebook a new disk each time{f'; only {kept} stays' if kept else ''}"
        return ""


class TemporaryFolder(MachineCheck):
    """Python takes another folder without a word where TMPDIR cannot be used; other programs fail."""

    name = "temporary-folder"
    title = "Temporary files cannot be written, or programs among them not run"

    def __init__(self, surroundings: Surroundings | None = None, mounts: Mounts = mounts_here) -> None:
        super().__init__(surroundings)
        self._mounts = mounts

    def examine(self, patient: Patient) -> Iterator[Finding]:
        named = next((name for name in ("TMPDIR", "TEMP", "TMP") if self._here.environ.get(name)), "")
        try:
            folder = Path(self._here.environ[named] if named else tempfile.gettempdir())
        except FileNotFoundError:  # it has tried them all
            folder = Path("/tmp")
        where = f"{named}={folder}" if named else str(folder)
        cure = "export TMPDIR=FOLDER, one that can be written"
        if not folder.is_dir() or not _is_writable(folder):
            yield self._broken(
                where,
                "nothing can be written there" if folder.is_dir() else "there is no such folder",
                "downloads, uploads of models and packed environments need room for temporary files",
                cure,
            )
            return
        mount = mount_of(folder, self._mounts())
        if mount and "noexec" in mount.options:
            yield self._risk(
                where,
                f"{mount.point} is mounted noexec: no program there may be run, and no library loaded",
                "packages that are built, and environments of Python models that are unpacked there, have both",
                cure.replace("be written", "be written and run from"),
            )


def _is_writable(folder: Path) -> bool:
    try:
        descriptor, path = tempfile.mkstemp(dir=folder, prefix="bident-")
    except OSError:
        return False
    try:
        return os.write(descriptor, b"x") == 1
    except OSError:
        return False
    finally:
        os.close(descriptor)
        Path(path).unlink(missing_ok=True)


class HuggingFaceOffline(MachineCheck):
    """Models that name weights on the hub."""

    name = "hugging-face-offline"
    title = "Hugging Face is told to stay offline, and its cache is empty"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        environ = self._here.environ
        offline = [
            name
            for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
            if environ.get(name, "").lower() in ("1", "true", "yes", "on")
        ]
        tensor, _ = self._here.settings()
        cache = tensor.model_cache_directory
        kept = Path(environ["HF_HOME"]) if environ.get("HF_HOME") else (cache / "huggingface" if cache else None)
        hub = Path(environ["HF_HUB_CACHE"]) if environ.get("HF_HUB_CACHE") else (kept / "hub" if kept else None)
        if offline and hub and not any(hub.glob("models--*")):
            yield self._risk(
                f"{offline[0]}={environ[offline[0]]}",
                f"no model is in {hub}, and none may be fetched",
                "the weights were fetched into another cache: Bident gives Python models one of their own unless "
                "HF_HOME is set",
                "set HF_HOME to the folder that has them, or load once without the variable",
            )
