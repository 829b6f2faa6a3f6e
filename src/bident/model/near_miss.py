"""Recognises a model folder that is nearly right: one rename or one move away from being served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

MODEL_SUFFIXES = frozenset({".onnx", ".pt", ".pt2", ".py", ".xml", ".ubj", ".tl", ".plan"})
PICKLE_SUFFIXES = frozenset({".pkl", ".pickle", ".joblib"})


def advice(directory: Path, versions: list[int], wanted: Iterable[str]) -> str:
    """What to rename or move so that a file called one of ``wanted`` is found; empty if nothing is near.

    ``directory`` is the model's folder, ``versions`` the version folders it has.
    """
    known = set(wanted)
    advices = [*misnamed_config(directory), *_misplaced(directory, known)]
    for version in versions:
        advices += _in_version(directory / str(version), known)
        advices += _foreign(directory / str(version), directory.name)
    if not versions:
        advices += _misnamed_versions(directory, known)
    return "; ".join(advices)


def taken_for_repository(directory: Path) -> str:
    """What to name instead of ``directory`` where it is one model's folder and no repository; empty for all others."""
    entries = _entries(directory)
    versions = [name for name in entries if name.isdigit() and _holds_a_model_file(directory / name)]
    if "config.pbtxt" not in entries and not versions:
        return ""
    if any(_is_model_folder(directory / name) for name in entries if name not in versions):
        return ""
    return (
        f"this looks like a model folder, not a repository: give its parent, {directory.absolute().parent}, and the "
        f"model is served as '{directory.absolute().name}'"
    )


def _holds_a_model_file(version: Path) -> bool:
    return any(Path(name).stem == "model" or Path(name).suffix in MODEL_SUFFIXES for name in _entries(version))


def _is_model_folder(directory: Path) -> bool:
    return any(name.isdigit() or name == "config.pbtxt" for name in _entries(directory))


def misnamed_config(directory: Path) -> Iterator[str]:
    """What to rename where ``config.pbtxt`` is absent but was probably meant (``config.pbtxt.txt``)."""
    for name in meant_for_config(directory):
        yield f"rename '{name}' to 'config.pbtxt'"


def meant_for_config(directory: Path) -> list[str]:
    """Names of the files that were probably to be the ``config.pbtxt`` that ``directory`` has not."""
    names = _entries(directory)
    if "config.pbtxt" in names:
        return []
    starts = ("config.pb", "config.txt", "config.prototxt")
    return [name for name in names if name.lower().startswith(starts) or name.lower() == "config"]


def _misplaced(directory: Path, known: set[str]) -> Iterator[str]:
    for name in _entries(directory):
        if name in known:
            yield f"move '{name}' into a version folder: {directory / '1' / name}"
        elif name.isdigit() and name.startswith("0") and known.intersection(_entries(directory / name)):
            yield f"rename the version folder '{name}' to '{name.lstrip('0') or '1'}'"
        elif not name.isdigit():
            yield from _nested(directory / name)


def _nested(inner: Path) -> Iterator[str]:
    """``M/M/1/model.onnx``: an archive unpacked into a folder of its own name."""
    if any(name.isdigit() for name in _entries(inner)):
        yield f"the version folders in '{inner.name}' lie one level too deep: move them to {inner.parent}"


def _in_version(version: Path, known: set[str]) -> Iterator[str]:
    names = _entries(version)
    folded = {name.lower(): name for name in known}
    for name in names:
        if meant := _meant(name, folded):
            yield f"rename '{name}' to '{meant}' or set backend and default_model_filename"
        elif inside := known.intersection(_entries(version / name)):
            yield f"move '{name}/{min(inside)}' one folder up"
        elif Path(name).suffix.lower() in MODEL_SUFFIXES:
            yield f"rename '{name}' to 'model{Path(name).suffix.lower()}' or set backend and default_model_filename"


def _misnamed_versions(directory: Path, known: set[str]) -> Iterator[str]:
    """``v1``, ``latest``: folders that hold a model file and are called by no number."""
    for name in _entries(directory):
        names = _entries(directory / name)
        if not name.isdigit() and any(inner in known or Path(inner).suffix in MODEL_SUFFIXES for inner in names):
            number = name.lstrip("vV")
            yield f"rename the folder '{name}' to '{number if number.isdecimal() else '1'}'"


def _foreign(version: Path, model: str) -> Iterator[str]:
    """Files that no rename makes a tensor model."""
    for name in _entries(version):
        suffix = Path(name).suffix.lower()
        if suffix == ".gguf":
            yield f"'{name}' is for the text engine: 'bident pull {version / name} --as {model}'"
        elif suffix in PICKLE_SUFFIXES:
            yield f"'{name}' is a pickle, which is never loaded: export the model to ONNX, then 'bident add FILE'"


def _meant(name: str, folded: dict[str, str]) -> str | None:
    """The known name that ``name`` is but for capitals or an extension too many (``model.onnx.txt``)."""
    lower = name.lower()
    return folded.get(lower) or folded.get(lower.rpartition(".")[0])


def _entries(directory: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in directory.iterdir() if not entry.name.startswith("."))
    except OSError:
        return []
