"""Copies the sample models whose sources are files of this package: ``models/<name>/``."""

from __future__ import annotations

from pathlib import Path

from bident.zoo.folder import model_path, write_config

_MODELS = Path(__file__).parent / "models"


def write_sample(folder: Path, name: str, *, source: str = "", beside: tuple[str, ...] = (), mark: str = "") -> None:
    """Fill ``folder`` with ``config.pbtxt`` and labels of sample ``name``, and version 1 with its Python files.

    Another sample may be the ``source`` of the Python files. ``beside`` names files of ``models/`` that
    belong next to them, ``mark`` is added to the config.
    """
    write_config(folder, (_MODELS / name / "config.pbtxt").read_text(encoding="utf-8") + mark)
    for labels in (_MODELS / name).glob("*.txt"):
        (folder / labels.name).write_bytes(labels.read_bytes())
    python = sorted((_MODELS / (source or name)).glob("*.py"))
    for path in [*python, *(_MODELS / shared for shared in beside)]:
        if path.name != "__init__.py":
            model_path(folder, path.name).write_bytes(path.read_bytes())


def make_version(folder: Path) -> None:
    """Give an ensemble its version 1, which is empty but has to be there."""
    model_path(folder, ".keep").touch()
