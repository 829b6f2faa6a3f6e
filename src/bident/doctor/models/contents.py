"""Files that are not what their place says: pointers, stubs, pickles, models of another engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bident.backends.onnx.modelfile import diagnose
from bident.doctor.check import Weight
from bident.doctor.models.case import CANDIDATES, Case, ModelCheck, Seen, head
from bident.doctor.models.onnx_file import read_onnx
from bident.doctor.models.tree_file import read_trees
from bident.errors import ConfigError
from bident.model.files import kind_of
from bident.model.near_miss import PICKLE_SUFFIXES

_LFS = b"version https://git-lfs"
GGUF = b"GGUF"
_PICKLE = re.compile(rb"\x80[\x02-\x05]")


class LfsPointer(ModelCheck):
    """Three lines of text where weights should be."""

    name = "git-lfs-pointer"
    title = "A file is a Git LFS pointer: it only says where the content is"
    of_files = True
    cause = "The repository was cloned without git-lfs, or with GIT_LFS_SKIP_SMUDGE=1"

    def look(self, case: Case) -> Iterator[Seen]:
        for path in case.files():
            if head(path).startswith(_LFS):
                yield Seen(path, f"it is a pointer of {path.stat().st_size} bytes", f"git -C {path.parent} lfs pull")


class DamagedFile(ModelCheck):
    """Empty, cut short, or something else."""

    name = "damaged-file"
    title = "A model file is empty, cut short or no model at all"
    of_files = True
    cause = "A copy or download broke off, the disk was full, or the page of an error was saved in its place"

    def look(self, case: Case) -> Iterator[Seen]:
        for path in case.strangers():
            yield Seen(path, _stranger(path), "put the file itself there", cause="Only files are read")
        for path in case.model_files():
            start = head(path)
            if not start:
                yield Seen(path, _unread(path), "copy or export it again")
            elif start.startswith((_LFS, GGUF)) or _PICKLE.match(start):
                continue  # each has its own check
            elif problem := _damage(case.backend, path):
                yield Seen(path, problem, "compare its size or checksum with the original and copy it again")


def _stranger(path: Path) -> str:
    try:
        return f"it is {kind_of(path.stat().st_mode)} and no file"
    except OSError as error:
        return f"it is a link that leads to no file ({error.strerror})"


def _unread(path: Path) -> str:
    return "it is empty (0 bytes)" if not path.stat().st_size else "it cannot be read: check its permissions"


def _damage(backend: str, path: Path) -> str:
    """What is wrong with a model file's content; empty if nothing is, or if nobody here could say."""
    if backend == "onnxruntime" and path.suffix != ".ort":
        return "" if read_onnx(path) else diagnose(path)
    if backend == "fil":
        try:
            read_trees(path)
        except ConfigError as error:
            return error.message
    return ""


class PickleFile(ModelCheck):
    """A Python pickle where a model file should be."""

    name = "pickle-file"
    title = "A model is a Python pickle"
    of_files = True
    cause = "Opening a pickle runs whatever code it holds, and needs the very versions of the packages that wrote it"

    def look(self, case: Case) -> Iterator[Seen]:
        for path in case.files():
            if path.suffix.lower() in PICKLE_SUFFIXES or _PICKLE.match(head(path)):
                serves = case.backend == "python" and path.name != "model.py"
                yield Seen(
                    path,
                    "it is a pickle that model.py may open" if serves else "it is a pickle, which is never loaded",
                    "export the model: to_onnx of skl2onnx, save_model of XGBoost and LightGBM, torch.onnx.export; "
                    "then 'bident add FILE'",
                    Weight.RISK if serves else Weight.BROKEN,
                )


def pulling(path: Path, name: str) -> str:
    """The command that gives a GGUF file to the text engine, which tells it by its suffix."""
    if path.suffix.lower() == ".gguf":
        return f"bident pull {path} --as {name}"
    return f"rename it to {path.stem}.gguf, then bident pull {path.with_suffix('.gguf')} --as {name}"


class GgufFile(ModelCheck):
    """A language model in the repository of tensor models."""

    name = "gguf-in-repository"
    title = "A GGUF file lies in the repository of the tensor engine"
    of_files = True
    cause = "GGUF models take text and answer text: the text engine serves them, from its own library"

    def look(self, case: Case) -> Iterator[Seen]:
        for path in case.files():
            if head(path).startswith(GGUF):
                yield Seen(
                    path,
                    "it is a GGUF model",
                    f"{pulling(path, case.name)}, and take it out of the repository",
                    Weight.RISK if case.backend in CANDIDATES else Weight.BROKEN,
                )
