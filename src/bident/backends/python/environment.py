"""Which Python runs a model: the server's own, a virtual environment, or a conda-pack archive."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bident.errors import ConfigError

MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
_PYTHONS = ("bin/python3", "bin/python", "python.exe", "Scripts/python.exe")
_UNPACK_SECONDS = 600


@dataclass(frozen=True)
class Environment:
    """An interpreter, and the variables that a process under it needs."""

    interpreter: Path
    variables: dict[str, str]


def environment_of(parameter: str, model_directory: Path, cache: Path) -> Environment:
    """The environment that ``EXECUTION_ENV_PATH`` names; the server's own if it is empty.

    An archive is unpacked below ``cache``, once as long as it does not change. May block for long.
    Raises ConfigError.
    """
    if not parameter:
        return Environment(Path(sys.executable), {})
    if parameter.startswith(MODEL_DIRECTORY):
        parameter = str(model_directory) + parameter[len(MODEL_DIRECTORY) :]
    path = Path(parameter)
    if not path.exists():
        raise ConfigError(
            f"EXECUTION_ENV_PATH: {path} does not exist; name a virtual environment or a conda-pack archive"
        )
    folder = path if path.is_dir() else _unpacked(path, cache)
    return _in_folder(folder, path)


def _in_folder(folder: Path, named: Path) -> Environment:
    for name in _PYTHONS:
        # Not resolved: a virtual environment's python is known by the link's place.
        interpreter = folder / name
        if interpreter.exists():
            break
    else:
        raise ConfigError(
            f"EXECUTION_ENV_PATH: {named} holds no Python environment: looked for {', '.join(_PYTHONS)} in it"
        )
    variables = {"PATH": os.pathsep.join([str(interpreter.parent), os.environ.get("PATH", os.defpath)])}
    if (folder / "pyvenv.cfg").exists():
        variables["VIRTUAL_ENV"] = str(folder)
    else:
        variables["CONDA_PREFIX"] = str(folder)
    return Environment(interpreter, variables)


def _unpacked(archive: Path, cache: Path) -> Path:
    facts = archive.stat()
    key = f"{archive.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}"
    folder = cache / hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    # Made aside and moved into place whole: nobody ever sees half an environment.
    building = Path(tempfile.mkdtemp(prefix="unpacking-", dir=cache))
    try:
        _extract(archive, building)
        try:
            building.rename(folder)
        except OSError:
            if not folder.exists():
                raise  # otherwise another server was faster
            shutil.rmtree(building, ignore_errors=True)
    except (OSError, tarfile.TarError, EOFError) as error:
        shutil.rmtree(building, ignore_errors=True)
        raise ConfigError(f"EXECUTION_ENV_PATH: {archive} cannot be unpacked into {cache}: {error}") from error
    _fix_prefixes(folder)
    return folder


def _extract(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        # "tar" and not "data": environments hold links to places outside, and files of any mode.
        if hasattr(tarfile, "tar_filter"):
            tar.extractall(folder, filter="tar")
        else:
            tar.extractall(folder)


def _fix_prefixes(folder: Path) -> None:
    """Conda's own step after unpacking; environments mostly run without it."""
    script = folder / "bin" / "conda-unpack"
    python = folder / "bin" / "python"
    if script.exists() and python.exists():
        subprocess.run([python, script], capture_output=True, timeout=_UNPACK_SECONDS, check=False)
