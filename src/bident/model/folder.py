"""ModelFolder: one model as it lies on disk, before anybody has decided that it can be served."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bident.errors import Code, ConfigError, ServeError, invalid_arg
from bident.model import pbtxt
from bident.model.files import read_file
from bident.model.fingerprint import fingerprint
from bident.model.hints import listed
from bident.model.near_miss import misnamed_config
from bident.model.proto import ModelConfigProto, pb
from bident.model.scratch import Scratch

CONFIG = "config.pbtxt"
BETWEEN = "::"
"""Stands between a repository and the name of a model in it, where that alone is not enough; as in Triton's log."""
_MAX_VERSION = 2**63 - 1


def check_name(name: str) -> None:
    """Refuse what cannot be a model's name: empty, leading out of a repository, hidden, no text (ServeError)."""
    if not name.strip():
        raise invalid_arg("Model name cannot be empty. Please enter a valid name to deploy.")
    if ".." in name or any(character in name for character in "/\\\0"):
        raise invalid_arg(
            f"model name {name!r} must not contain path traversal characters ('..', slashes, NUL); "
            "use the name of a folder in the model repository"
        )
    if is_hidden(name):
        raise invalid_arg(
            f"model name {name!r} is that of a hidden folder, which is no model; "
            "use a name that does not begin with a dot, other than 'lost+found'"
        )
    if not is_text(name):
        raise invalid_arg(f"model name {name!r} is not valid Unicode; rename the model")


def is_hidden(name: str) -> bool:
    """Hidden folders (``.git``, ``.ipynb_checkpoints``, ``..data``) and what fsck leaves are no models."""
    return name.startswith(".") or name == "lost+found"


def is_text(name: str) -> bool:
    """Whether ``name`` can be written down; a file's name on disk may be bytes that are no text."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def version_of(folder_name: str) -> int | None:
    """The version that a folder's name stands for: digits only, above 0, no leading zero; else None."""
    if not (folder_name.isascii() and folder_name.isdigit()) or folder_name.startswith("0"):
        return None
    if len(folder_name) > len(str(_MAX_VERSION)) or int(folder_name) > _MAX_VERSION:
        return None
    return int(folder_name)


@dataclass(frozen=True)
class ModelFolder:
    """A model's folder: ``config.pbtxt``, label files, one folder per version.

    ``config_name`` picks ``configs/<config_name>.pbtxt`` where that exists. Without ``auto_complete``
    a config file is required. ``config_override`` (load API) replaces the file. Where the files came
    with a request, ``scratch`` is the folder made for them; it belongs to whoever loads the model.
    Where repositories are namespaces, ``namespace`` is the one it lies in, which its ``name`` may begin
    with, and ``member`` gives the full name of what an ensemble in it calls so.
    """

    name: str
    directory: Path
    config_name: str = ""
    auto_complete: bool = True
    config_override: ModelConfigProto | None = field(default=None, compare=False, repr=False)
    scratch: Scratch | None = None
    namespace: str = ""
    member: Callable[[str], str] | None = field(default=None, compare=False, repr=False)

    @property
    def config_path(self) -> Path:
        """Where the config is read from; the file need not exist."""
        if self.config_name:
            chosen = self.directory / "configs" / f"{self.config_name}.pbtxt"
            if chosen.exists():
                return chosen
        return self.directory / CONFIG

    def versions(self) -> list[int]:
        """The versions that have a folder, ascending. Raises ConfigError when it cannot be read."""
        return sorted(version for name in self._subfolders() if (version := version_of(name)) is not None)

    def raw_config(self) -> ModelConfigProto:
        """The config as written, its name filled in; an empty one if there is no file and need not be.

        Raises ConfigError: unreadable, not protobuf text, or named differently from its folder.
        """
        proto = pb.ModelConfig()
        if self.config_override is not None:
            proto.CopyFrom(self.config_override)
            source = "the config override"
        else:
            proto, source = self._config_file(), str(self.config_path)
        own_name = self.directory.name if self.namespace else self.name
        if proto.name and proto.name != own_name:
            raise ConfigError(
                f"unexpected directory name '{own_name}' for model '{proto.name}', directory name must equal "
                f"model name; rename the folder to '{proto.name}', or the model to '{own_name}' in {source}"
            )
        proto.name = self.name
        if self.member is not None:
            for step in proto.ensemble_scheduling.step:
                step.model_name = self.member(step.model_name)
        return proto

    def select_versions(self, proto: ModelConfigProto) -> list[int]:
        """The versions to serve by ``proto``'s version policy, ascending. Raises ConfigError if none."""
        present = self.versions()
        policy = proto.version_policy
        choice = policy.WhichOneof("policy_choice")
        if not proto.HasField("version_policy"):
            chosen = present[-1:]
        elif choice == "latest":
            chosen = present[-policy.latest.num_versions :] if policy.latest.num_versions else []
        elif choice == "specific":
            chosen = sorted(set(present).intersection(policy.specific.versions))
        else:  # 'all', and Triton reads an empty policy as 'all'
            chosen = present
        if not chosen:
            raise ConfigError(
                "at least one version must be available under the version policy of model "
                f"'{self.name}': {self._no_version(proto, present)}"
            )
        return chosen

    def warnings(self) -> list[str]:
        """What the folder holds that is not read although its owner may think so, in words for the log."""
        told = [f"model '{self.name}' has no config.pbtxt: {cure}" for cure in misnamed_config(self.directory)]
        for folder_name in sorted(self._subfolders()):
            if folder_name.isdigit() and folder_name.startswith("0"):
                told.append(
                    f"ignore version directory '{folder_name}' of model '{self.name}' "
                    "which contains leading zeros in its directory name"
                )
        return told

    def fingerprint(self) -> Hashable:
        """A value that differs as soon as any file of the model does. Reads no file; never raises."""
        return fingerprint(self.directory)

    def remove(self) -> None:
        """Delete the folder of files that came with a request; a repository's own folder is never touched."""
        if self.scratch is not None:
            self.scratch.remove()

    def _config_file(self) -> ModelConfigProto:
        path = self.config_path
        try:
            return pbtxt.parse(read_file(path), str(path))
        except FileNotFoundError:
            if self.auto_complete:
                return pb.ModelConfig()
            raise ConfigError(
                f"failed to open text file for read {path}: no such file; write one, "
                "or start without --disable-auto-complete-config"
            ) from None
        except OSError as error:
            raise ConfigError(
                f"failed to open text file for read {path}: {error.strerror}; check its kind and its permissions"
            ) from None

    def _subfolders(self) -> Iterator[str]:
        try:
            with os.scandir(self.directory) as entries:
                yield from [entry.name for entry in entries if _is_folder(entry)]
        except OSError as error:
            raise ConfigError(
                f"cannot read the folder of model '{self.name}', {self.directory}: {error.strerror}; "
                "check that it exists and its permissions"
            ) from None

    def _no_version(self, proto: ModelConfigProto, present: list[int]) -> str:
        if present:
            return f"the folder holds {listed(map(str, present))}; change version_policy or add a version"
        refused = sorted(name for name in self._subfolders() if name.isdigit())
        if refused:
            return f"{listed(refused)} is no version folder (a number above 0, without leading zeros); rename it"
        kind = (
            "an empty folder, as an ensemble has no files" if proto.platform == "ensemble" else "holding the model file"
        )
        return f"make the folder {self.directory / '1'}, {kind}"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def ambiguous(name: str, places: list[Path]) -> ServeError:
    """The refusal of a model that several repositories hold."""
    return ServeError(
        Code.INTERNAL,
        f"failed to poll model '{name}': not unique across all model repositories "
        f"({listed(map(str, places))}); keep one of them",
    )
