"""Class labels: one per line in a text file beside the config, for the classification extension."""

from __future__ import annotations

from pathlib import Path

from bident.errors import ConfigError
from bident.model.config import ModelConfig
from bident.model.confine import escapes
from bident.model.files import read_file
from bident.model.hints import did_you_mean


def load(directory: Path, config: ModelConfig) -> dict[str, list[str]]:
    """Labels by output name, for the outputs that declare a ``label_filename``.

    The label of class ``i`` is at index ``i``. Raises ConfigError when a file is missing, unreadable
    or not UTF-8.
    """
    return {
        name: _read(directory, spec.label_filename, name)
        for name, spec in config.outputs.items()
        if spec.label_filename
    }


def _read(directory: Path, filename: str, output: str) -> list[str]:
    if escapes(filename):
        raise ConfigError(
            f"label_filename '{filename}' of output '{output}' must stay within model directory {directory}; "
            "move the file beside config.pbtxt"
        )
    path = directory / filename
    try:
        text = read_file(path).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"failed to open text file for read {path}: {error.strerror} (label_filename of output '{output}'); "
            f"{_near(path, error)}"
        ) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"label file {path} is not UTF-8 text at line {line}; save it as UTF-8") from None
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _near(path: Path, error: OSError) -> str:
    if not isinstance(error, FileNotFoundError):
        return "check its kind and its permissions"
    try:
        present = sorted(entry.name for entry in path.parent.iterdir() if entry.is_file())
    except OSError:
        present = []
    return did_you_mean(path.name, present) or "the folder holds no file"
